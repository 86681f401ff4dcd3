//! The states of a G, with Go's numbers, and which may follow which.
//!
//! Who owns the stack: nobody while [`GState::Idle`] and [`GState::Dead`]; the M it runs on while
//! [`GState::Running`] and [`GState::Syscall`]; whoever changes the state next while it is
//! [`GState::Runnable`], [`GState::Waiting`] or [`GState::Preempted`].

use crate::sys::fatal::fatal;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a G is doing.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GState {
    /// Just allocated, never used.
    Idle = 0,
    /// In a run queue.
    Runnable = 1,
    /// On an M.
    Running = 2,
    /// On an M, in a marked call.
    Syscall = 3,
    /// In no run queue: waits to be made ready.
    Waiting = 4,
    /// Not in use: finished, or about to be given work.
    Dead = 6,
    /// Stopped itself because it was asked to, and waits to be found.
    Preempted = 9,
}

/// Set together with a state: somebody looks at the stack, which must not run meanwhile.
pub(crate) const SCAN: u32 = 0x1000;
/// Set together with a state: how long the G waits is measured (`track`), until it runs next.
pub(crate) const TRACKED: u32 = 0x2000;

impl GState {
    /// Go's name.
    #[inline]
    pub(crate) fn name(self) -> &'static str {
        match self {
            GState::Idle => "idle",
            GState::Runnable => "runnable",
            GState::Running => "running",
            GState::Syscall => "syscall",
            GState::Waiting => "waiting",
            GState::Dead => "dead",
            GState::Preempted => "preempted",
        }
    }

    fn from_bits(bits: u32) -> Option<GState> {
        use GState::{Dead, Idle, Preempted, Runnable, Running, Syscall, Waiting};
        let all = [Idle, Runnable, Running, Syscall, Waiting, Dead, Preempted];
        all.into_iter().find(|&state| state as u32 == bits & !(SCAN | TRACKED))
    }

    /// Whether a G may go from here to `to`.
    #[inline]
    pub(crate) const fn may_become(self, to: GState) -> bool {
        use GState::{Dead, Idle, Preempted, Runnable, Running, Syscall, Waiting};
        matches!(
            (self, to),
            (Idle, Dead)
                | (Dead, Runnable)
                | (Runnable, Running)
                | (Running, Runnable | Syscall | Waiting | Dead | Preempted)
                | (Syscall, Running | Runnable)
                | (Waiting, Runnable)
                | (Preempted, Waiting | Runnable)
        )
    }
}

/// The state of one G.
#[derive(Debug)]
pub(crate) struct StateWord(AtomicU32);

impl StateWord {
    #[inline]
    pub(crate) const fn new() -> StateWord {
        StateWord(AtomicU32::new(GState::Idle as u32))
    }

    #[inline]
    pub(crate) fn load(&self) -> GState {
        // A word that is none of ours cannot be: nothing else writes it.
        GState::from_bits(self.0.load(Ordering::Relaxed)).unwrap_or(GState::Idle)
    }

    /// From `from` to `to`, by whoever owns the G: nobody else changes the state meanwhile, so a
    /// plain store will do; order is made by the queue, lock or switch that hands the G on.
    ///
    /// Fatal if it is not in `from`, or may not become `to`: a G is in two places at once. True: it is one
    /// that is tracked. The few that are pay for it here, and the others nothing.
    #[inline]
    pub(crate) fn transition(&self, id: impl Fn() -> u64, from: GState, to: GState) -> bool {
        let found = self.0.load(Ordering::Relaxed);
        if found != from as u32 || !from.may_become(to) {
            self.transition_tracked(id(), found, from, to);
            return true;
        }
        self.0.store(to as u32, Ordering::Relaxed);
        false
    }

    #[cold]
    #[inline(never)]
    fn transition_tracked(&self, id: u64, found: u32, from: GState, to: GState) {
        if found != from as u32 | TRACKED || !from.may_become(to) {
            illegal(id, found, from, to);
        }
        let is_over = matches!(to, GState::Running | GState::Dead);
        let mark = if is_over { 0 } else { TRACKED };
        self.0.store(to as u32 | mark, Ordering::Relaxed);
    }

    /// It is tracked from here on, until it runs next or dies. By whoever owns the G.
    pub(crate) fn track(&self) {
        self.0.fetch_or(TRACKED, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
fn illegal(id: u64, found: u32, from: GState, to: GState) -> ! {
    let scan = if found & SCAN == 0 { "" } else { " and looked at" };
    let found = GState::from_bits(found).map_or("nothing known", GState::name);
    fatal!("goroutine {id} was to go from {} to {}, but is {found}{scan}", from.name(), to.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use GState::{Dead, Idle, Preempted, Runnable, Running, Syscall, Waiting};

    #[test]
    fn states_have_gos_numbers() {
        let numbers = [Idle, Runnable, Running, Syscall, Waiting, Dead, Preempted];
        assert_eq!(numbers.map(|state| state as u32), [0, 1, 2, 3, 4, 6, 9]);
        assert_eq!(SCAN, 0x1000);
    }

    #[test]
    fn a_tracked_g_is_as_others_until_it_runs() {
        let word = StateWord::new();
        assert!(!word.transition(|| 1, Idle, Dead));
        word.track();
        for step in [Dead, Runnable, Running].windows(2) {
            assert_eq!(word.load(), step[0]);
            assert!(word.transition(|| 1, step[0], step[1]));
        }
        assert!(!word.transition(|| 1, Running, Waiting));
        word.track();
        assert!(word.transition(|| 1, Waiting, Runnable));
        assert!(word.transition(|| 1, Runnable, Running));
        word.track();
        assert!(word.transition(|| 1, Running, Dead));
        assert!(!word.transition(|| 1, Dead, Runnable));
    }

    #[test]
    fn a_life_goes_through_every_state() {
        let word = StateWord::new();
        let life = [
            Idle, Dead, Runnable, Running, Waiting, Runnable, Running, Syscall, Running, Preempted,
            Waiting, Runnable, Running, Runnable, Running, Dead, Runnable,
        ];
        for step in life.windows(2) {
            assert_eq!(word.load(), step[0]);
            word.transition(|| 1, step[0], step[1]);
            assert_eq!(word.load(), step[1]);
        }
    }

    #[test]
    fn a_dead_or_waiting_g_cannot_run_without_being_made_runnable() {
        for from in [Idle, Dead, Waiting, Preempted, Running] {
            assert!(!from.may_become(Running), "{from:?}");
        }
        assert!(!Waiting.may_become(Dead));
        assert!(!Runnable.may_become(Waiting));
    }
}
