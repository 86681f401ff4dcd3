//! The lock of the runtime's own tables: short critical sections, no thread-local, no allocation.
//!
//! std's `Mutex` asks a thread-local whether the thread panics; code here runs where neither
//! thread-locals nor panics are allowed. A thread spins about a microsecond, then sleeps on the word.
//! Giving the lock back is a plain store: it is on the way of every yield.
//!
//! Holder: 1. works; 2. stores [`FREE`]; 3. light barrier; 4. wakes one sleeper if any is counted.
//! Waiter: 1. counts itself; 2. heavy barrier; 3. takes the lock if it is `FREE`, leaving
//! [`CONTENDED`], and is not counted any more; 4. else makes the word `CONTENDED`, sleeps while it is,
//! then goes to 3.
//!
//! A sleeper is never forgotten: by the barriers the holder's step 4 sees the count, or the waiter's
//! step 3 sees `FREE`; and the count stays up until the waiter has the lock, so whoever takes the
//! lock before it wakes it too.
//!
//! A holder that must not touch the lock any more once it is free, since it may be gone with what it
//! guards, exchanges the word for `FREE` instead, and wakes one if it was `CONTENDED`. Whoever was woken
//! makes the word `CONTENDED` again, or has the lock with that word: the next one is not forgotten.

use crate::thread::no_preempt::NoPreempt;
use crate::{barrier, futex};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps or has slept.
const CONTENDED: u32 = 2;

/// One to two microseconds of `pause` instructions: two Ps that yield all the time meet here for a tenth
/// of that, and sleeping takes ten times as long.
const SPINS: u32 = 200;

/// A value that one thread at a time may use.
pub struct Lock<T> {
    word: AtomicU32,
    waiters: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands `T` to one thread at a time, so it may be shared where `T` may be sent.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            word: AtomicU32::new(FREE),
            waiters: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until nobody else holds it. The caller is not stopped while it has it: others wait for it who
    /// cannot give their P away.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        if cfg!(debug_assertions) && !crate::thread::no_preempt::is_preempt_disabled() {
            crate::fatal::throw(format_args!("a lock of the runtime is taken with preemption on"));
        }
        self.lock_preemptible()
    }

    /// As [`Lock::lock`], for a lock that nobody waits for who has a P and preemption off.
    #[inline]
    pub fn lock_preemptible(&self) -> LockGuard<'_, T> {
        if !self.try_lock() {
            self.lock_slow();
        }
        LockGuard { lock: self }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // PAIR lock-word: sees all that the last holder wrote.
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

    /// Takes it, as one who has waited; or says that somebody does.
    fn lock_contended(&self) -> bool {
        let change = |from| {
            // PAIR lock-word: sees all that the last holder wrote.
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

    /// Takes the lock without a guard, for a holder that is not one function: a switch, whose other side
    /// gives it back.
    pub fn acquire(&self) {
        std::mem::forget(self.lock_preemptible());
    }

    /// Gives back what [`Lock::acquire`] took.
    ///
    /// # Safety
    /// - **held**: `acquire` was called last, by whoever this caller goes on for.
    pub unsafe fn release(&self) {
        drop(LockGuard { lock: self });
    }

    /// In the child of a fork: those who waited for it are in the parent, and so is whoever had it. Then the
    /// value is as that one left it in the middle of something, and `mend` makes the best of it.
    ///
    /// A fork is one moment for each other thread: what it had written by then is in the child, in order, and
    /// nothing later. So a lock that is free there guards what is whole.
    ///
    /// # Safety
    /// - **child**: called in a forked child, by its only thread, which did not have the lock.
    pub unsafe fn repair_in_child(&self, mend: impl FnOnce(&mut T)) {
        self.waiters.store(0, Ordering::Relaxed);
        if self.word.load(Ordering::Relaxed) != FREE {
            // SAFETY: child — nobody else is left who could use it.
            mend(unsafe { &mut *self.value.get() });
            self.word.store(FREE, Ordering::Relaxed);
        }
    }

    /// As [`Lock::release`], where the lock may be gone as soon as it is free: it is not touched then.
    ///
    /// # Safety
    /// - **held**: as there.
    pub unsafe fn release_before_free(&self) {
        let word = &raw const self.word;
        // PAIR lock-word: publishes what this holder wrote to the next.
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake(word, 1);
        }
    }

    /// Where the value is.
    pub const fn as_ptr(&self) -> *mut T {
        self.value.get()
    }

    /// The value, for a holder without a guard.
    ///
    /// # Safety
    /// - **held**: as for [`Lock::release`], and no other reference to the value is in use.
    #[expect(clippy::mut_from_ref, reason = "the lock is held: the caller promises so")]
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

/// The right to use the value; gives the lock back when dropped.
#[must_use]
#[derive(Debug)]
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a `LockGuard` exists only while its lock is held by this thread.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes it the only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // PAIR lock-word: publishes what this holder wrote to the next.
        self.lock.word.store(FREE, Ordering::Release);
        barrier::light();
        if self.lock.waiters.load(Ordering::Relaxed) != 0 {
            futex::wake(&self.lock.word, 1);
        }
    }
}

/// As [`LockGuard`], had by code that is neither stopped nor moved meanwhile: others wait for moments only.
#[must_use]
#[derive(Debug)]
pub struct NoPreemptLockGuard<'a, T> {
    // Given back first.
    locked: LockGuard<'a, T>,
    _no_preempt: NoPreempt,
}

impl<'a, T> NoPreemptLockGuard<'a, T> {
    /// Waits until nobody else holds the lock.
    pub fn new(lock: &'a Lock<T>) -> NoPreemptLockGuard<'a, T> {
        // SAFETY: here — nothing that is done with such a lock held waits or switches.
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
    fn a_lock_that_is_given_back_and_forgotten_wakes_those_who_sleep() {
        for round in 0..200 {
            let lock = Lock::new(0u64);
            std::thread::scope(|scope| {
                for me in 0..4 {
                    let lock = &lock;
                    scope.spawn(move || {
                        for i in 0..200 {
                            lock.acquire();
                            // SAFETY: held — above.
                            *unsafe { lock.value() } += 1;
                            if (i + round) % 50 == 0 {
                                std::thread::sleep(std::time::Duration::from_micros(20));
                            }
                            match (me + i) % 2 {
                                // SAFETY: held — above.
                                0 => unsafe { lock.release() },
                                // SAFETY: held — above.
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
    fn a_lock_held_without_a_guard_can_be_given_back() {
        let lock = Lock::new(());
        lock.acquire();
        // SAFETY: held — taken one line above.
        unsafe { lock.release() };
        drop(lock.lock());
    }
}
