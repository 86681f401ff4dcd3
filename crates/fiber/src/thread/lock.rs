//! A lock for the runtime's own tables, for short critical sections. [`Lock`] allocates nothing. A
//! thread that finds the lock free uses no thread-local, except in debug checks; system calls of a
//! waiter save and restore errno.
//!
//! std's `Mutex` reads a thread-local to see whether the thread is panicking. The runtime takes its
//! locks in code that may neither use thread-locals nor panic. [`LockWord`] is the lock without the
//! value: the top of its file states the protocol, and why no wake-up is lost.
//!
//! A holder turns preemption off ([`Lock::lock`]), except where [`Lock::lock_preemptible`] permits
//! otherwise. Where the next holder may free the memory of the lock, the holder releases it by
//! [`Lock::release_before_free`].
//!
//! A lock never records its holder: a holder that takes the lock again waits forever.

use crate::protocol::lock_word::LockWord;
use crate::thread::no_preempt::NoPreempt;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// A value that only one thread at a time can use.
pub struct Lock<T> {
    word: LockWord,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to `T`, so `T: Send` is enough to share it.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Creates a free lock that guards `value`.
    pub const fn new(value: T) -> Lock<T> {
        Lock { word: LockWord::new(), value: UnsafeCell::new(value) }
    }

    /// Blocks until the lock is free, and takes it.
    ///
    /// Preemption must be off as long as the lock is held: a waiter blocks its thread without
    /// releasing its P. Debug builds check this.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        if cfg!(debug_assertions) && !crate::thread::no_preempt::is_preempt_disabled() {
            crate::fatal::throw(format_args!("a lock of the runtime was taken with preemption on"));
        }
        self.lock_preemptible()
    }

    /// Like [`Lock::lock`], but allows preemption. Only for locks for which no thread that has a P
    /// and preemption off ever waits.
    #[inline]
    pub fn lock_preemptible(&self) -> LockGuard<'_, T> {
        self.word.lock();
        LockGuard { lock: self }
    }

    /// Takes the lock without a guard, for a holder that is more than one function: one side of a
    /// switch takes the lock, and the other side releases it.
    pub fn acquire(&self) {
        std::mem::forget(self.lock_preemptible());
    }

    /// Releases the lock taken by [`Lock::acquire`].
    ///
    /// # Safety
    /// - **held**: the lock was taken by `acquire` and has not been released, and the caller
    ///   continues the work of the code that took it.
    pub unsafe fn release(&self) {
        drop(LockGuard { lock: self });
    }

    /// Repairs the lock in a forked child: its holder and its waiters exist only in the parent. If
    /// the lock was held, the holder may have been in the middle of a change of the value, and
    /// `mend` repairs the value.
    ///
    /// For each of the parent's other threads, the fork is one moment: the child's memory has all
    /// writes that the thread made before it, and none that it made later. So the value of a lock
    /// that is free in the child is consistent.
    ///
    /// # Safety
    /// - **child**: the caller is the only thread of a forked child, and did not hold the lock when
    ///   the process forked.
    pub unsafe fn repair_in_child(&self, mend: impl FnOnce(&mut T)) {
        self.word.repair_in_child(|| {
            // SAFETY: child — the caller is the only thread, so no other code uses the value.
            mend(unsafe { &mut *self.value.get() });
        });
    }

    /// Like [`Lock::release`], for a lock whose memory may be freed as soon as the lock is free:
    /// does not touch the lock after that.
    ///
    /// # Safety
    /// - **held**: as for [`Lock::release`].
    pub unsafe fn release_before_free(&self) {
        self.word.release_before_free();
    }

    /// Returns a pointer to the value.
    pub const fn as_ptr(&self) -> *mut T {
        self.value.get()
    }

    /// Returns the value, for a holder without a guard.
    ///
    /// # Safety
    /// - **held**: as for [`Lock::release`], and no other reference to the value is in use.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it holds the lock")]
    pub unsafe fn value(&self) -> &mut T {
        // SAFETY: held — promised by the caller.
        unsafe { &mut *self.value.get() }
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// Access to the value of a held lock. Releases the lock when dropped.
#[must_use]
#[derive(Debug)]
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a `LockGuard` exists only while this thread holds its lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.word.release();
    }
}

/// Like [`LockGuard`], with preemption off: the holder is neither stopped nor moved to another
/// thread, so waiters wait only briefly.
#[must_use]
#[derive(Debug)]
pub struct NoPreemptLockGuard<'a, T> {
    // Dropped first: the lock is released before preemption is turned on again.
    locked: LockGuard<'a, T>,
    _no_preempt: NoPreempt,
}

impl<'a, T> NoPreemptLockGuard<'a, T> {
    /// Turns preemption off, blocks until the lock is free, and takes it.
    pub fn new(lock: &'a Lock<T>) -> NoPreemptLockGuard<'a, T> {
        // SAFETY: here — code that holds such a lock drops the guard before it waits or switches.
        let no_preempt = unsafe { NoPreempt::new() };
        NoPreemptLockGuard { locked: lock.lock(), _no_preempt: no_preempt }
    }
}

impl<T> Deref for NoPreemptLockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.locked
    }
}

impl<T> DerefMut for NoPreemptLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.locked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_by_many_threads_are_all_counted() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 160_000);
    }

    #[test]
    fn release_and_release_before_free_wake_sleeping_threads() {
        for round in 0..200 {
            let lock = Lock::new(0u64);
            std::thread::scope(|scope| {
                for me in 0..4 {
                    let lock = &lock;
                    scope.spawn(move || {
                        for i in 0..200 {
                            lock.acquire();
                            // SAFETY: held — taken above.
                            *unsafe { lock.value() } += 1;
                            if (i + round) % 50 == 0 {
                                std::thread::sleep(std::time::Duration::from_micros(20));
                            }
                            match (me + i) % 2 {
                                // SAFETY: held — taken above.
                                0 => unsafe { lock.release() },
                                // SAFETY: held — taken above.
                                _ => unsafe { lock.release_before_free() },
                            }
                        }
                    });
                }
            });
            assert_eq!(*lock.lock(), 800);
        }
    }

    #[test]
    fn a_lock_acquired_without_a_guard_can_be_released() {
        let lock = Lock::new(());
        lock.acquire();
        // SAFETY: held — taken above.
        unsafe { lock.release() };
        drop(lock.lock());
    }
}
