//! The twin of [`SleepWord`] for models.

use super::atomic::{AtomicU32, Ordering};
use super::futex_model::Futex;
use std::time::Duration;

/// See the top of this file.
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
        // PAIR sleep-word: as the real one.
        self.word.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, value: u32) {
        // PAIR sleep-word: as the real one.
        self.word.store(value, Ordering::Release);
    }

    /// Time does not pass in a model.
    pub(crate) fn wait(&self, value: u32, _timeout: Option<Duration>) -> bool {
        self.futex.wait(|| self.word.load(Ordering::Relaxed) == value);
        true
    }

    pub(crate) fn wake(&self) {
        self.futex.wake();
    }
}
