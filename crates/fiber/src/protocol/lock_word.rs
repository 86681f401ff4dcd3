//! The word of the runtime's lock, and the count of the threads that wait for it.
//!
//! A thread that finds the lock held spins for about a microsecond, then sleeps on the lock's word.
//! The release is a plain store, because every yield releases a lock.
//!
//! - Holder: 1. uses the value; 2. stores [`FREE`]; 3. light barrier; 4. wakes one sleeper if the
//!   count of waiters is not 0.
//! - Waiter: 1. increments the count of waiters; 2. heavy barrier; 3. if the word is `FREE`, takes
//!   the lock by storing [`CONTENDED`], and decrements the count; 4. otherwise changes the word to
//!   `CONTENDED`, sleeps while the word is `CONTENDED`, and returns to step 3.
//!
//! No wake-up is lost. Because of the barriers, the holder sees the count in step 4, or the waiter
//! sees `FREE` in step 3. A waiter is counted until it holds the lock. So if another thread takes
//! the lock first, that thread's release wakes a sleeper too.
//!
//! The next holder may free the memory of the lock. Where this can happen, the holder must not
//! touch the lock after the release ([`LockWord::release_before_free`]): it stores `FREE` by a
//! swap, and wakes one sleeper if the old word was `CONTENDED`. The woken waiter changes the word
//! to `CONTENDED` again, whether it gets the lock or not, so the next sleeper is woken as well.
//!
//! The word never records its holder: a holder that takes the lock again waits forever.

use crate::base::atomic::{AtomicU32, Ordering, const_fn, spin_loop};
use crate::base::barrier;
use crate::base::futex::FutexWord;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and other threads may be asleep on the word.
const CONTENDED: u32 = 2;

/// A lock without the value that it protects (see the top of this file). The steps of a waiter are
/// methods of their own: the models leave out or reorder steps, and must then fail.
#[derive(Debug)]
pub(crate) struct LockWord {
    word: FutexWord,
    waiters: AtomicU32,
}

impl LockWord {
    const_fn! {
        /// Creates the word of a free lock.
        pub(crate) fn new() -> LockWord {
            LockWord { word: FutexWord::new(FREE), waiters: AtomicU32::new(0) }
        }
    }

    /// Blocks until the lock is free, and takes it.
    #[inline]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    /// Takes the lock if it is free. Returns whether it was.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // PAIR lock-word: sees everything that the last holder wrote.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        if self.spin() {
            return;
        }
        self.count_waiter();
        while !self.lock_contended() {
            self.sleep();
        }
        self.uncount_waiter();
    }

    /// Polls the word, and takes the lock if it becomes free. Returns whether it took the lock.
    fn spin(&self) -> bool {
        (0..FutexWord::SPINS_BEFORE_SLEEP).any(|_| {
            spin_loop();
            self.word.load(Ordering::Relaxed) == FREE && self.try_lock()
        })
    }

    /// Performs steps 1 and 2 of a waiter.
    pub(crate) fn count_waiter(&self) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        barrier::heavy();
    }

    /// Performs step 3 of a waiter, up to the count, and step 4, up to the sleep: tries to take the
    /// lock, for a thread that is counted as a waiter. If the lock is held, marks the word
    /// `CONTENDED` and returns `false`.
    pub(crate) fn lock_contended(&self) -> bool {
        let change = |from| {
            // PAIR lock-word: sees everything that the last holder wrote.
            self.word.compare_exchange(from, CONTENDED, Ordering::Acquire, Ordering::Relaxed)
        };
        loop {
            match change(FREE) {
                Ok(_) => return true,
                Err(CONTENDED) => return false,
                Err(_) if change(HELD).is_ok() => return false,
                Err(_) => {}
            }
        }
    }

    /// Performs the sleep of a waiter's step 4. May return without a reason.
    pub(crate) fn sleep(&self) {
        self.word.wait(CONTENDED);
    }

    /// Performs the end of a waiter's step 3: the waiter has the lock, and is counted no longer.
    pub(crate) fn uncount_waiter(&self) {
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether a thread is counted as a waiter.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// Releases the lock: steps 2 to 4 of the holder.
    #[inline]
    pub(crate) fn release(&self) {
        // PAIR lock-word: publishes this holder's writes to the next holder.
        self.word.store(FREE, Ordering::Release);
        barrier::light();
        if self.has_waiters() {
            self.word.wake(1);
        }
    }

    /// Releases a lock whose memory may be freed as soon as the lock is free: does not touch the
    /// lock after that.
    #[inline]
    pub(crate) fn release_before_free(&self) {
        let word = &raw const self.word;
        // PAIR lock-word: publishes this holder's writes to the next holder.
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            FutexWord::wake_at(word, 1);
        }
    }

    /// Makes the lock free in a forked child, where its holder and its waiters do not exist. If the
    /// lock was held, calls `mend` before. The caller is the only thread of the child.
    pub(crate) fn repair_in_child(&self, mend: impl FnOnce()) {
        self.waiters.store(0, Ordering::Relaxed);
        if self.word.load(Ordering::Relaxed) != FREE {
            mend();
            self.word.store(FREE, Ordering::Relaxed);
        }
    }
}
