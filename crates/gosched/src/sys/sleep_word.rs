//! A word that one thread sleeps on and others change: see [`futex`].

use gosched_fiber::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// See the top of this file. A model has a twin of it.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct SleepWord(AtomicU32);

impl SleepWord {
    pub(crate) const fn new() -> SleepWord {
        SleepWord(AtomicU32::new(0))
    }

    pub(crate) fn get(&self) -> u32 {
        // PAIR sleep-word: sees what was done before it was set.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, value: u32) {
        // PAIR sleep-word: publishes what was done before.
        self.0.store(value, Ordering::Release);
    }

    /// Sleeps while the word is `value`; may return for no reason. False if `timeout` is over.
    pub(crate) fn wait(&self, value: u32, timeout: Option<Duration>) -> bool {
        futex::wait(&self.0, value, timeout)
    }

    /// Wakes the sleeper, if there is one. (It may be gone: words are never freed.)
    pub(crate) fn wake(&self) {
        futex::wake(&self.0, 1);
    }
}
