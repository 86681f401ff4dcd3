//! A word that one thread sleeps on and other threads change: see [`futex`]. `wait` never checks
//! the word after it wakes: its caller does.

use gosched_fiber::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// See the top of this file. Models use a version of their own.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct SleepWord(AtomicU32);

impl SleepWord {
    pub(crate) const fn new() -> SleepWord {
        SleepWord(AtomicU32::new(0))
    }

    pub(crate) fn get(&self) -> u32 {
        // PAIR sleep-word: sees all writes before the `set`.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, value: u32) {
        // PAIR sleep-word: publishes all earlier writes.
        self.0.store(value, Ordering::Release);
    }

    /// Sleeps while the word is `value`. May return spuriously. Returns `false` if the wait timed
    /// out.
    pub(crate) fn wait(&self, value: u32, timeout: Option<Duration>) -> bool {
        futex::wait(&self.0, value, timeout)
    }

    /// Wakes the thread that sleeps on the word, if there is one. May be called after that thread
    /// has ended: words are never freed.
    pub(crate) fn wake(&self) {
        futex::wake(&self.0, 1);
    }
}
