//! The twin of [`SleepWord`] for models: look and sleep are one step by a lock.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use std::time::Duration;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct SleepWord {
    word: AtomicU32,
    lock: Mutex<()>,
    called: Condvar,
}

impl SleepWord {
    pub(crate) fn new() -> SleepWord {
        SleepWord { word: AtomicU32::new(0), lock: Mutex::new(()), called: Condvar::new() }
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
        let guard = self.lock.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == value {
            drop(self.called.wait(guard).unwrap());
        }
        true
    }

    pub(crate) fn wake(&self) {
        drop(self.lock.lock().unwrap());
        self.called.notify_one();
    }
}
