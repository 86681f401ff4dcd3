//! The loom version of [`SleepWord`], for models.

use super::atomic::{AtomicU32, Ordering};
use super::futex::Futex;
use std::time::Duration;

/// A word that one thread sleeps on and other threads change.
#[derive(Debug)]
pub(crate) struct SleepWord {
    word: AtomicU32,
    futex: Futex,
}

impl SleepWord {
    pub(crate) fn new() -> SleepWord {
        SleepWord { word: AtomicU32::new(0), futex: Futex::new() }
    }

    pub(crate) fn get(&self) -> u32 {
        // PAIR sleep-word: same ordering as in `sleep_word.rs`.
        self.word.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, value: u32) {
        // PAIR sleep-word: same ordering as in `sleep_word.rs`.
        self.word.store(value, Ordering::Release);
    }

    /// Sleeps while the word is `value`. Ignores the timeout: time does not pass in a model.
    pub(crate) fn wait(&self, value: u32, _timeout: Option<Duration>) -> bool {
        self.futex.wait(|| self.word.load(Ordering::Relaxed) == value);
        true
    }

    pub(crate) fn wake(&self) {
        self.futex.wake();
    }

    /// Returns whether a thread sleeps on the word and was not woken.
    pub(crate) fn has_sleeper(&self) -> bool {
        self.futex.has_sleeper()
    }
}
