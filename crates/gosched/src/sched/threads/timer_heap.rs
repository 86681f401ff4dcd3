//! The timers of the threads backend, and the word that wakes the timer thread. This module never
//! fires a timer and never sleeps: `timer_thread` does both.

use crate::gmp::timer::TimerHeap;
use crate::sys::sleep_word::SleepWord;

pub(crate) static HEAP: TimerHeap = TimerHeap::new();

/// The word that the timer thread sleeps on. Nonzero if the thread must run again.
pub(crate) static WAKE_WORD: SleepWord = SleepWord::new();

/// Wakes the timer thread.
pub(crate) fn wake() {
    WAKE_WORD.set(1);
    WAKE_WORD.wake();
}

/// Returns whether a timer can make a goroutine or a thread ready.
pub(crate) fn can_wake() -> bool {
    HEAP.has_waking()
}

/// Returns the number of timers.
pub(crate) fn num_timers() -> usize {
    HEAP.len()
}
