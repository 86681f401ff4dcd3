//! Sleeping on a word until another thread changes it. One file per system.
//!
//! `wait` checks the word and falls asleep in one step, so a wake-up between the check and the
//! sleep is not lost. `wait` may return without a reason: callers check the word again. On
//! Linux both functions preserve errno, because the caller may be in the middle of user code.
//!
//! The functions never write to the word: their callers do. `FutexWord` is a word with these
//! functions as methods.

#[cfg(ported)]
#[path = "linux.rs"]
mod imp;

#[cfg(not(ported))]
#[path = "condvar.rs"]
mod imp;

#[cfg(all(test, ported))]
pub mod condvar;

mod word;

pub use imp::{wait, wake};
pub(crate) use word::FutexWord;

use std::sync::atomic::AtomicU32;
use std::time::Duration;

// The contract: every system provides these functions.
const _: fn(&AtomicU32, u32, Option<Duration>) -> bool = imp::wait;
const _: fn(*const AtomicU32, u32) = imp::wake;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    type Wait = fn(&AtomicU32, u32, Option<Duration>) -> bool;
    type Wake = fn(*const AtomicU32, u32);

    fn all() -> Vec<(Wait, Wake)> {
        vec![
            (wait, wake),
            #[cfg(ported)]
            (condvar::wait, condvar::wake),
        ]
    }

    #[test]
    fn a_word_that_has_changed_is_not_waited_for() {
        for (wait, _) in all() {
            assert!(wait(&AtomicU32::new(1), 0, None));
        }
    }

    #[test]
    fn a_wait_ends_when_its_time_is_over() {
        for (wait, _) in all() {
            let word = AtomicU32::new(0);
            while wait(&word, 0, Some(Duration::from_millis(1))) {}
        }
    }

    #[test]
    fn a_sleeper_is_woken() {
        for (wait, wake) in all() {
            let word = AtomicU32::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while word.load(Ordering::Acquire) == 0 {
                        wait(&word, 0, None);
                    }
                });
                word.store(1, Ordering::Release);
                wake(&word, 1);
            });
        }
    }
}
