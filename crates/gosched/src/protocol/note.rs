//! A place where one M sleeps until another thread wakes it: Go's note.
//!
//! - Sleeper: 1. sleeps while the word is 0; 2. resets the word to 0.
//! - Waker: 1. sets the word; 2. wakes the thread that sleeps on it.
//!
//! A wake-up that comes before the sleep is not lost: the sleeper then finds the word set.
//!
//! A note never counts wake-ups: two that come before one sleep end one sleep.

use crate::sys::atomic::const_fn;
use crate::sys::sleep_word::SleepWord;
use std::time::Duration;

/// A note (see the top of this file). Its address is the address of the word that the sleeper
/// sleeps on.
/// Go: note.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Note(pub(super) SleepWord);

impl Note {
    const_fn! {
        pub(crate) fn new() -> Note {
            Note(SleepWord::new())
        }
    }

    /// Wakes the sleeper, or makes its next sleep return at once.
    /// Go: notewakeup.
    pub(crate) fn wake(&self) {
        self.set();
        self.wake_sleeper();
    }

    /// Performs step 1 of a waker. Step 2 must follow.
    pub(crate) fn set(&self) {
        self.0.set(1);
    }

    /// Performs step 2 of a waker, or repeats it for a sleeper that seems to have missed it.
    pub(crate) fn wake_sleeper(&self) {
        self.0.wake();
    }

    /// Consumes the wake-up. Returns whether there was one.
    pub(crate) fn take(&self) -> bool {
        let came = self.0.get() != 0;
        if came {
            self.0.set(0);
        }
        came
    }

    /// Sleeps until woken, and consumes the wake-up. Returns false if `timeout` passes without one.
    /// Go: notesleep, notetsleep.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> bool {
        while self.0.get() == 0 {
            if !self.0.wait(0, timeout) && self.0.get() == 0 {
                return false;
            }
        }
        self.0.set(0);
        true
    }
}
