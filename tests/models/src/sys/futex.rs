//! The loom version of [`futex`](gosched_fiber::futex), for models. A lock makes checking the word
//! and falling asleep one step.

use super::weakness::{self, Weakness};
use loom::sync::{Condvar, Mutex};

/// The queue of threads that sleep on one word.
#[derive(Debug)]
pub(crate) struct Futex {
    lock: Mutex<()>,
    called: Condvar,
}

impl Futex {
    pub(crate) fn new() -> Futex {
        Futex { lock: Mutex::new(()), called: Condvar::new() }
    }

    /// Sleeps if `is_as_expected` returns true. There is no timeout: time does not pass in a model.
    pub(crate) fn wait(&self, is_as_expected: impl Fn() -> bool) {
        if weakness::is_active(Weakness::Futex) {
            if is_as_expected() {
                drop(self.called.wait(self.lock.lock().unwrap()).unwrap());
            }
            return;
        }
        let guard = self.lock.lock().unwrap();
        if is_as_expected() {
            drop(self.called.wait(guard).unwrap());
        }
    }

    /// Wakes one sleeping thread, if there is one.
    pub(crate) fn wake(&self) {
        drop(self.lock.lock().unwrap());
        self.called.notify_one();
    }
}
