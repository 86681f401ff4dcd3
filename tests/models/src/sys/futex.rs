//! The loom version of `gosched_fiber::futex`. A lock makes checking the word and falling asleep
//! one step.

use super::weakness::{self, Weakness};
use loom::sync::{Condvar, Mutex};

/// The queue of threads that sleep on one word.
#[derive(Debug)]
pub(crate) struct Futex {
    /// Number of threads that sleep and were not woken.
    sleepers: Mutex<u32>,
    called: Condvar,
}

impl Futex {
    pub(crate) fn new() -> Futex {
        Futex { sleepers: Mutex::new(0), called: Condvar::new() }
    }

    /// Sleeps if `is_as_expected` returns true. There is no timeout: time does not pass in a model.
    pub(crate) fn wait(&self, is_as_expected: impl Fn() -> bool) {
        if weakness::is_active(Weakness::Futex) && !is_as_expected() {
            return;
        }
        let mut sleepers = self.sleepers.lock().unwrap();
        if weakness::is_active(Weakness::Futex) || is_as_expected() {
            *sleepers += 1;
            drop(self.called.wait(sleepers).unwrap());
        }
    }

    /// Wakes one sleeping thread, if there is one.
    pub(crate) fn wake(&self) {
        let mut sleepers = self.sleepers.lock().unwrap();
        if *sleepers > 0 {
            *sleepers -= 1;
            self.called.notify_one();
        }
    }

    /// Returns whether a thread sleeps and was not woken, as the kernel reports it.
    pub(crate) fn has_sleeper(&self) -> bool {
        *self.sleepers.lock().unwrap() > 0
    }
}
