//! An atomic word that threads sleep on, for `protocol`. The models replace this type by one with
//! loom's atomics. A sleep never checks the word after it: the caller does.

use super::{wait, wake};
use std::sync::atomic::{AtomicU32, Ordering};

/// A word that threads change, and sleep on.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct FutexWord(AtomicU32);

impl FutexWord {
    /// How often a thread polls the word of a held lock before it sleeps: one to two microseconds
    /// of `pause` instructions. Two Ps that yield in a loop contend for a tenth of that time, and a
    /// sleep takes ten times as long. Models do not poll.
    pub(crate) const SPINS_BEFORE_SLEEP: u32 = 200;

    pub(crate) const fn new(value: u32) -> FutexWord {
        FutexWord(AtomicU32::new(value))
    }

    #[inline]
    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    #[inline]
    pub(crate) fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }

    #[inline]
    pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }

    #[inline]
    pub(crate) fn compare_exchange(
        &self,
        from: u32,
        to: u32,
        done: Ordering,
        failed: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(from, to, done, failed)
    }

    /// Sleeps while the word is `expected`. May return without a reason.
    #[inline]
    pub(crate) fn wait(&self, expected: u32) {
        wait(&self.0, expected, None);
    }

    /// Wakes at most `count` threads that sleep on the word; without a port, possibly more.
    #[inline]
    pub(crate) fn wake(&self, count: u32) {
        FutexWord::wake_at(self, count);
    }

    /// Like [`FutexWord::wake`]. Uses only the address: the memory of the word may have been freed.
    #[inline]
    pub(crate) fn wake_at(word: *const FutexWord, count: u32) {
        wake(word.cast::<AtomicU32>(), count);
    }
}
