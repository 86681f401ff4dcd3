//! The loom version of [`FutexWord`], for models.

use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::futex::Futex;

/// A word that threads change, and sleep on.
#[derive(Debug)]
pub(crate) struct FutexWord {
    word: AtomicU32,
    futex: Futex,
}

impl FutexWord {
    /// A thread that polls takes the lock like a thread that comes later, so models do not poll.
    pub(crate) const SPINS_BEFORE_SLEEP: u32 = 0;

    pub(crate) fn new(value: u32) -> FutexWord {
        FutexWord { word: AtomicU32::new(value), futex: Futex::new() }
    }

    pub(crate) fn load(&self, by: Ordering) -> u32 {
        self.word.load(by)
    }

    /// The real word is stored to. loom never orders a store and an exchange of one word that are
    /// not ordered otherwise, so the model exchanges the word. The exchange does not replace a
    /// barrier: with `Release` it does not order the loads that follow.
    pub(crate) fn store(&self, value: u32, by: Ordering) {
        self.word.swap(value, by);
    }

    pub(crate) fn swap(&self, value: u32, by: Ordering) -> u32 {
        self.word.swap(value, by)
    }

    pub(crate) fn compare_exchange(
        &self,
        from: u32,
        to: u32,
        done: Ordering,
        failed: Ordering,
    ) -> Result<u32, u32> {
        self.word.compare_exchange(from, to, done, failed)
    }

    /// Sleeps while the word is `expected`.
    pub(crate) fn wait(&self, expected: u32) {
        self.futex.wait(|| self.word.load(Ordering::Relaxed) == expected);
    }

    /// Wakes at most `count` threads that sleep on the word.
    pub(crate) fn wake(&self, count: u32) {
        (0..count).for_each(|_| self.futex.wake());
    }

    /// Like [`FutexWord::wake`]. The real one uses only the address.
    pub(crate) fn wake_at(word: *const FutexWord, count: u32) {
        // SAFETY: models leak their words (`explore::leak`).
        unsafe { &*word }.wake(count);
    }
}
