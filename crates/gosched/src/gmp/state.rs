//! The states of a G, with Go's numbers, and which may follow which.
//!
//! Who owns the stack: nobody while [`GState::Idle`] and [`GState::Dead`]; the M it runs on while
//! [`GState::Running`] and [`GState::Syscall`]; whoever changes the state next while it is
//! [`GState::Runnable`], [`GState::Waiting`] or [`GState::Preempted`].
//!
//! The word also counts its changes, so that whoever looks at a G without owning it can tell whether it stood
//! still meanwhile. Owner: 1. changes the word; 2. writes to the stack. Who looks: 1. reads the word, which says
//! that nobody runs on the stack; 2. copies the stack; 3. reads the word again: the same.

use crate::probe;
use crate::sys::fatal::fatal;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What a G is doing.
/// Go: _Gidle, _Grunnable, _Grunning, _Gsyscall, _Gwaiting, _Gdead, _Gpreempted.
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

/// Above the state: how often it has changed.
const CHANGE_COUNT_SHIFT: u32 = 16;
const STATE_MASK: u64 = (1 << CHANGE_COUNT_SHIFT) - 1;
/// Set together with a state: how long the G waits is measured (`track`), until it runs next.
const TRACKED: u64 = 0x2000;

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

    /// Whether a goroutine is there: it has begun to live, and has not ended.
    #[inline]
    pub(crate) fn is_alive(self) -> bool {
        !matches!(self, GState::Idle | GState::Dead)
    }

    fn from_word(word: u64) -> Option<GState> {
        use GState::{Dead, Idle, Preempted, Runnable, Running, Syscall, Waiting};
        let all = [Idle, Runnable, Running, Syscall, Waiting, Dead, Preempted];
        all.into_iter().find(|&state| state as u64 == word & STATE_MASK & !TRACKED)
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
pub(crate) struct StateWord(AtomicU64);

/// A state, and how often it had changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateVersion(u64);

impl StateVersion {
    pub(crate) fn state(self) -> GState {
        GState::from_word(self.0).unwrap_or(GState::Idle)
    }
}

impl StateWord {
    #[inline]
    pub(crate) const fn new() -> StateWord {
        StateWord(AtomicU64::new(GState::Idle as u64))
    }

    #[inline]
    pub(crate) fn load(&self) -> GState {
        // A word that is none of ours cannot be: nothing else writes it.
        GState::from_word(self.0.load(Ordering::Relaxed)).unwrap_or(GState::Idle)
    }

    /// For whoever looks: the first step, see the top of this file.
    pub(crate) fn state_version(&self) -> StateVersion {
        let moment = StateVersion(self.0.load(Ordering::Relaxed));
        // PAIR g-still: what is read next is not older than the word. (The owner's stores are in order: it leaves
        // a stack by a switch, which the compiler does not look through, and x86 keeps the order of stores.)
        fence(Ordering::Acquire);
        moment
    }

    /// For whoever looks: the last step.
    pub(crate) fn is_unchanged(&self, moment: StateVersion) -> bool {
        // PAIR g-still: the word is not older than what was read before.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == moment.0
    }

    /// From `from` to `to`, by whoever owns the G: nobody else changes the state meanwhile, so a
    /// plain store will do; order is made by the queue, lock or switch that hands the G on.
    /// Go: casgstatus.
    ///
    /// Fatal if it is not in `from`, or may not become `to`: a G is in two places at once. True: it is one
    /// that is tracked. The few that are pay for it here, and the others nothing.
    #[inline(always)]
    pub(crate) fn transition(&self, id: impl Fn() -> u64, from: GState, to: GState) -> bool {
        let found = self.0.load(Ordering::Relaxed);
        if found & STATE_MASK != from as u64 || !from.may_become(to) {
            self.transition_tracked(id(), found, from, to);
            return true;
        }
        let change = u64::from(probe::ENABLED) << CHANGE_COUNT_SHIFT;
        let step = (change + to as u64).wrapping_sub(from as u64);
        self.0.store(found.wrapping_add(step), Ordering::Relaxed);
        false
    }

    #[cold]
    #[inline(never)]
    fn transition_tracked(&self, id: u64, found: u64, from: GState, to: GState) {
        if found & STATE_MASK != from as u64 | TRACKED || !from.may_become(to) {
            illegal(id, found, from, to);
        }
        let is_over = matches!(to, GState::Running | GState::Dead);
        let mark = if is_over { 0 } else { TRACKED };
        let changes = (found & !STATE_MASK).wrapping_add(1 << CHANGE_COUNT_SHIFT);
        self.0.store(changes | to as u64 | mark, Ordering::Relaxed);
    }

    /// It is tracked from here on, until it runs next or dies. By whoever owns the G.
    pub(crate) fn track(&self) {
        self.0.fetch_or(TRACKED, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
fn illegal(id: u64, found: u64, from: GState, to: GState) -> ! {
    let found = GState::from_word(found).map_or("nothing known", GState::name);
    fatal!("goroutine {id} was to go from {} to {}, but is {found}", from.name(), to.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use GState::{Dead, Idle, Preempted, Runnable, Running, Syscall, Waiting};

    #[test]
    fn states_have_gos_numbers() {
        let numbers = [Idle, Runnable, Running, Syscall, Waiting, Dead, Preempted];
        assert_eq!(numbers.map(|state| state as u32), [0, 1, 2, 3, 4, 6, 9]);
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
            let moment = word.state_version();
            assert!(word.is_unchanged(moment));
            word.transition(|| 1, step[0], step[1]);
            assert_eq!(word.load(), step[1]);
            assert!(!word.is_unchanged(moment) && moment.state() == step[0]);
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
