//! A lock for the runtime's own tables, for short critical sections. [`Lock`] allocates nothing. A
//! thread that finds the lock free uses no thread-local, except in debug checks; system calls of a
//! waiter save and restore errno.
//!
//! std's `Mutex` reads a thread-local to see whether the thread is panicking. The runtime takes its
//! locks in code that may neither use thread-locals nor panic. A thread that finds the lock held
//! spins for about a microsecond, then sleeps on the lock's word. The release is a plain store,
//! because every yield releases a lock.
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
//! touch the lock after the release ([`Lock::release_before_free`]): it stores `FREE` by a swap,
//! and wakes one sleeper if the old word was `CONTENDED`. The woken waiter changes the word to
//! `CONTENDED` again, whether it gets the lock or not, so the next sleeper is woken as well.
//!
//! A lock never records its holder: a holder that takes the lock again waits forever.

use crate::thread::no_preempt::NoPreempt;
use crate::{barrier, futex};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and other threads may be asleep on the word.
const CONTENDED: u32 = 2;

/// How often a thread polls a held lock before it sleeps: one to two microseconds of `pause`
/// instructions. Two Ps that yield in a loop contend for a tenth of that time, and a sleep takes
/// ten times as long.
const SPINS: u32 = 200;

/// A value that only one thread at a time can use.
pub struct Lock<T> {
    word: AtomicU32,
    waiters: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to `T`, so `T: Send` is enough to share it.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Creates a free lock that guards `value`.
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            word: AtomicU32::new(FREE),
            waiters: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
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
        if !self.try_lock() {
            self.lock_slow();
        }
        LockGuard { lock: self }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // PAIR lock-word: sees everything that the last holder wrote.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.word.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return;
            }
        }
        self.waiters.fetch_add(1, Ordering::Relaxed);
        barrier::heavy();
        while !self.lock_contended() {
            futex::wait(&self.word, CONTENDED, None);
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Tries to take the lock, for a thread that is counted as a waiter. If the lock is held, marks
    /// the word `CONTENDED` and returns `false`.
    fn lock_contended(&self) -> bool {
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
        self.waiters.store(0, Ordering::Relaxed);
        if self.word.load(Ordering::Relaxed) != FREE {
            // SAFETY: child — the caller is the only thread, so no other code uses the value.
            mend(unsafe { &mut *self.value.get() });
            self.word.store(FREE, Ordering::Relaxed);
        }
    }

    /// Like [`Lock::release`], for a lock whose memory may be freed as soon as the lock is free:
    /// does not touch the lock after that.
    ///
    /// # Safety
    /// - **held**: as for [`Lock::release`].
    pub unsafe fn release_before_free(&self) {
        let word = &raw const self.word;
        // PAIR lock-word: publishes this holder's writes to the next holder.
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake(word, 1);
        }
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
        // PAIR lock-word: publishes this holder's writes to the next holder.
        self.lock.word.store(FREE, Ordering::Release);
        barrier::light();
        if self.lock.waiters.load(Ordering::Relaxed) != 0 {
            futex::wake(&self.lock.word, 1);
        }
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
