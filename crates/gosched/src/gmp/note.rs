//! A place where one M sleeps until another wakes it, once: Go's note.
//!
//! Sleeper: 1. sleeps while the word is 0; 2. takes it back to 0.
//! Waker: 1. sets the word; 2. wakes whoever sleeps on it.
//!
//! A wake-up that comes first is not lost: the word is then 1 when the sleeper looks.

use crate::sys::sleep_word::SleepWord;
use std::time::Duration;

/// See the top of this file. Its address is that of the word that the sleeper sleeps on.
/// Go: note.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Note(SleepWord);

impl Note {
    pub(crate) fn new() -> Note {
        Note(SleepWord::new())
    }

    /// Lets the sleeper go on, now or when it comes.
    /// Go: notewakeup.
    pub(crate) fn wake(&self) {
        self.0.set(1);
        self.0.wake();
    }

    /// Repeats the second step of a waker, for a sleeper that does not seem to have heard.
    #[cfg_attr(loom, expect(dead_code, reason = "no model loses a wake-up"))]
    pub(crate) fn wake_again(&self) {
        self.0.wake();
    }

    /// Only the first step of a waker: what a lost wake-up looks like.
    #[cfg(test)]
    #[cfg_attr(any(loom, feature = "threads"), expect(dead_code, reason = "no M is tested there"))]
    pub(crate) fn set_unheard(&self) {
        self.0.set(1);
    }

    /// Takes the wake-up, if it came.
    pub(crate) fn take(&self) -> bool {
        let came = self.0.get() != 0;
        if came {
            self.0.set(0);
        }
        came
    }

    /// Sleeps until it is woken, and takes the wake-up. False if `timeout` is over and none came.
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
