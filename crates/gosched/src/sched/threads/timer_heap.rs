//! The timers of goroutines that are threads, and the word that wakes the thread which fires them.

use crate::gmp::timer::TimerHeap;
use crate::sys::sleep_word::SleepWord;

pub(crate) static HEAP: TimerHeap = TimerHeap::new();

/// Not 0: a timer was added.
pub(crate) static WAKE_WORD: SleepWord = SleepWord::new();

/// The thread looks what there is to do.
pub(crate) fn wake() {
    WAKE_WORD.set(1);
    WAKE_WORD.wake();
}

/// Whether there is one that can make a thread ready.
pub(crate) fn can_wake() -> bool {
    HEAP.has_waking()
}

/// How many there are.
pub(crate) fn num_timers() -> usize {
    HEAP.len()
}
