//! The states of a G, with Go's numbers, and the legal transitions between them.
//!
//! The state determines who owns the G's stack. [`GState::Idle`] and [`GState::Dead`]: no thread.
//! [`GState::Running`] and [`GState::Syscall`]: the M that runs the G. [`GState::Runnable`]
//! and [`GState::Waiting`]: the thread that makes the next transition.
//!
//! The state word also counts transitions, so that a thread that inspects a G without owning it can
//! detect whether the G stood still meanwhile.
//!
//! - Owner: 1. changes the word; 2. writes to the stack.
//! - Inspector: 1. reads the word, whose state must be one in which no M runs on the stack; 2.
//!   copies the stack; 3. reads the word again: the copy is valid if the word has not changed.
//!
//! A transition never contains a memory barrier: the queue, lock or switch that hands the G on
//! provides the order.

use crate::probe;
use crate::sys::fatal::fatal;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The state of a G.
/// Go: _Gidle, _Grunnable, _Grunning, _Gsyscall, _Gwaiting, _Gdead.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GState {
    /// Allocated, and never used.
    Idle = 0,
    /// Ready to run: in a run queue, or on its way to an M.
    Runnable = 1,
    /// Running on an M.
    Running = 2,
    /// On an M, in a marked call.
    Syscall = 3,
    /// Parked: in no run queue until it is made ready.
    Waiting = 4,
    /// Not in use: the goroutine has ended, or the record is about to get a task.
    Dead = 6,
}

/// The bits above the state count the transitions.
const CHANGE_COUNT_SHIFT: u32 = 16;
const STATE_MASK: u64 = (1 << CHANGE_COUNT_SHIFT) - 1;
/// Flag beside the state: how long the G waits is measured (see `track`), until it next runs or
/// dies.
const TRACKED: u64 = 0x2000;

impl GState {
    /// Returns Go's name of the state.
    #[inline]
    pub(crate) fn name(self) -> &'static str {
        match self {
            GState::Idle => "idle",
            GState::Runnable => "runnable",
            GState::Running => "running",
            GState::Syscall => "syscall",
            GState::Waiting => "waiting",
            GState::Dead => "dead",
        }
    }

    /// Returns whether a goroutine exists in this state: it was started, and has not ended.
    #[inline]
    pub(crate) fn is_alive(self) -> bool {
        !matches!(self, GState::Idle | GState::Dead)
    }

    fn from_word(word: u64) -> Option<GState> {
        use GState::{Dead, Idle, Runnable, Running, Syscall, Waiting};
        let all = [Idle, Runnable, Running, Syscall, Waiting, Dead];
        all.into_iter().find(|&state| state as u64 == word & STATE_MASK & !TRACKED)
    }

    /// Returns whether the transition from `self` to `to` is legal.
    #[inline]
    pub(crate) const fn may_become(self, to: GState) -> bool {
        use GState::{Dead, Idle, Runnable, Running, Syscall, Waiting};
        matches!(
            (self, to),
            (Idle, Dead)
                | (Dead, Runnable)
                | (Runnable, Running)
                | (Running, Runnable | Syscall | Waiting | Dead)
                | (Syscall, Running | Runnable)
                | (Waiting, Runnable)
        )
    }
}

/// The state of one G, with its tracking flag and its transition count, in one word.
#[derive(Debug)]
pub(crate) struct StateWord(AtomicU64);

/// A state word as it was at one moment: the state and the transition count.
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
        // Only this type writes the word, so the word always holds a known state.
        GState::from_word(self.0.load(Ordering::Relaxed)).unwrap_or(GState::Idle)
    }

    /// Reads the state word: step 1 of an inspector (see the top of this file).
    pub(crate) fn state_version(&self) -> StateVersion {
        let moment = StateVersion(self.0.load(Ordering::Relaxed));
        // PAIR g-still: what the inspector reads next is not older than the word. (The owner's
        // stores are in order: the owner leaves its stack by a switch, which the compiler cannot
        // see through, and x86 keeps the order of stores.)
        fence(Ordering::Acquire);
        moment
    }

    /// Returns whether the state word has not changed since `moment`: step 3 of an inspector.
    pub(crate) fn is_unchanged(&self, moment: StateVersion) -> bool {
        // PAIR g-still: the word is not older than what the inspector read before.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == moment.0
    }

    /// Changes the state from `from` to `to`. Returns whether the G is tracked. Called by the owner
    /// of the G: no other thread changes the state meanwhile, so a plain store suffices. The queue,
    /// lock or switch that hands the G on provides the order.
    ///
    /// Ends the process with a fatal error if the state is not `from`, or if the transition is
    /// illegal: the G is then in two places at once. Only tracked Gs take the slow path, so that
    /// tracking costs the other Gs nothing.
    /// Go: casgstatus.
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

    /// Marks the G as tracked until it next runs or dies. Called by the owner of the G.
    pub(crate) fn track(&self) {
        self.0.fetch_or(TRACKED, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
fn illegal(id: u64, found: u64, from: GState, to: GState) -> ! {
    let found = GState::from_word(found).map_or("unknown", GState::name);
    fatal!(
        "goroutine {id} cannot change from {} to {}: its state is {found}",
        from.name(),
        to.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use GState::{Dead, Idle, Runnable, Running, Syscall, Waiting};

    #[test]
    fn g_states_have_the_same_numbers_as_in_go() {
        let numbers = [Idle, Runnable, Running, Syscall, Waiting, Dead];
        assert_eq!(numbers.map(|state| state as u32), [0, 1, 2, 3, 4, 6]);
    }

    #[test]
    fn a_g_stays_tracked_until_it_runs_or_dies() {
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
    fn a_g_may_pass_through_every_state_in_its_life() {
        let word = StateWord::new();
        let life = [
            Idle, Dead, Runnable, Running, Waiting, Runnable, Running, Syscall, Running, Waiting,
            Runnable, Running, Runnable, Running, Dead, Runnable,
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
        for from in [Idle, Dead, Waiting, Running] {
            assert!(!from.may_become(Running), "{from:?}");
        }
        assert!(!Waiting.may_become(Dead));
        assert!(!Runnable.may_become(Waiting));
    }
}
