//! Mutual exclusion between goroutines and threads, with the two modes of Go's mutex.
//!
//! *Normal mode*: the first caller that finds the mutex free takes it, and a waiter that was woken
//! competes with new callers. This is fast, because callers that already run need no switch. A
//! woken waiter that does not get the mutex within a millisecond makes it *starving*: each holder
//! then hands the mutex directly to the first waiter of the queue, until the mutex goes to a waiter
//! that has waited for less than a millisecond or is the last one in the queue.
//!
//! A caller spins for a short time before it parks, if the holder may be running on another CPU.
//!
//! `protocol::mutex_word` has the word of the mutex: its bits, the steps of the holder and of the
//! callers that compete, and why no waiter is missed. This module has the queue, the clock, and the
//! value.
//!
//! Without contention, a lock or an unlock never acquires the queue's lock. This module never
//! changes a bit of the word itself.

use super::parking::{Guarded, WaitOptions, WaitOutcome};
use crate::block::before_wait;
use crate::block::waiter::{Taken, WaitQueue};
use crate::gmp::current;
use crate::probe;
use crate::probe::wait_reason::WaitReason;
use crate::protocol::mutex_word::{
    Contender, MutexWord, ParkDecision, ParkOutcome, Removed, ToWake, Unlocked,
};
use crate::sched;
use crate::sys::clock;
use crate::sys::forked;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a waiter competes before the mutex becomes starving, in nanoseconds: a millisecond, as
/// in Go.
/// Go: starvationThresholdNs.
const STARVATION_THRESHOLD_NANOS: u64 = 1_000_000;

/// How often a caller spins before it parks.
const MAX_SPINS: u32 = 4;

/// The number of pauses of one spin.
const PAUSES_PER_SPIN: u32 = 30;

/// A mutex without a value.
/// Go: sync.Mutex.
#[derive(Debug)]
pub(crate) struct RawMutex {
    word: MutexWord,
    queue: Guarded<WaitQueue>,
    /// The id of the goroutine that holds the mutex, for the leak hints; 0 if there is none.
    /// Written only by the holder, so it is 0 for a moment after the mutex is taken and before it
    /// is released.
    holder: AtomicU64,
}

/// What a waiter shows to the thread that removes it from the queue.
struct Ticket {
    /// When the waiter first waited, in nanoseconds of `clock::now`.
    since: Cell<u64>,
    /// The mutex was handed over: the waiter holds it.
    handed: Cell<bool>,
}

impl RawMutex {
    pub(crate) const fn new() -> RawMutex {
        let queue = Guarded::new(WaitQueue::new());
        RawMutex { word: MutexWord::new(), queue, holder: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let taken = self.word.try_lock();
        if taken {
            self.record_holder();
        }
        taken
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if !self.lock_fast() {
            self.lock_slow();
        }
    }

    /// Takes the mutex if it is free and has no waiters. Does not wait.
    #[inline]
    fn lock_fast(&self) -> bool {
        let taken = self.word.lock_fast();
        if taken {
            self.record_holder();
        }
        taken
    }

    /// Records the caller, which has just taken the mutex, as its holder.
    #[inline]
    fn record_holder(&self) {
        if probe::ENABLED {
            self.holder.store(current::goroutine_id(), Ordering::Relaxed);
        }
    }

    /// Takes the mutex, and waits if necessary.
    #[cold]
    fn lock_slow(&self) {
        if !self.lock_in_child() {
            self.compete(None);
        }
    }

    /// In a forked child, takes the mutex if it is free: its waiters exist only in the parent.
    #[cold]
    fn lock_in_child(&self) -> bool {
        if !forked::is_child() {
            return false;
        }
        self.word.forget_waiters_of_parent();
        self.try_lock()
    }

    /// Takes the mutex, and waits if necessary, but not longer than until `until`. Returns false if
    /// that time limit was reached. The process is not a forked child.
    /// Go: Mutex.lockSlow.
    fn compete(&self, until: Option<u64>) -> bool {
        let ticket = Ticket { since: Cell::new(0), handed: Cell::new(false) };
        let taken = self.word.compete(
            |spins| spins < MAX_SPINS && sched::can_spin(),
            || (0..PAUSES_PER_SPIN).for_each(|_| std::hint::spin_loop()),
            |contender| self.park(&ticket, contender, until),
        );
        if taken {
            self.record_holder();
        }
        taken
    }

    /// Parks while the mutex is locked or starving.
    fn park(&self, ticket: &Ticket, contender: Contender, until: Option<u64>) -> ParkOutcome {
        let now = clock::now();
        if !contender.waited {
            ticket.since.set(now);
        }
        let is_starving = now - ticket.since.get() > STARVATION_THRESHOLD_NANOS;
        let wait = WaitOptions {
            reason: WaitReason::Mutex,
            holders: self.holder.as_ptr().cast(),
            queue: |queue: &mut WaitQueue| queue,
            first: contender.waited,
            ticket: std::ptr::from_ref(ticket).cast_mut().cast(),
            until,
            gave_up: Some(&|held| self.word.after_timeout(held.is_empty())),
        };
        let parked = self.queue.wait(&wait, |_| {
            let decision = self.word.mark_parked(contender, is_starving);
            (decision == ParkDecision::Free).then_some(())
        });
        match parked {
            Ok(()) => ParkOutcome::Free,
            Err(WaitOutcome::TimedOut) => ParkOutcome::TimedOut,
            Err(WaitOutcome::Woken) if ticket.handed.get() => ParkOutcome::Handed,
            Err(WaitOutcome::Woken) => ParkOutcome::Woken,
        }
    }

    /// Releases the mutex.
    ///
    /// # Safety
    /// - **held**: the caller holds the mutex.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        if self.clear_locked() == Unlocked::MayHaveWaiters && self.unlock_slow() {
            // The mutex was handed over: its new holder runs next.
            sched::yield_to_ready();
        }
    }

    /// Like [`RawMutex::unlock`], for a caller that is about to wait: it does not yield to the new
    /// holder.
    ///
    /// # Safety
    /// - **held**: the caller holds the mutex.
    pub(crate) unsafe fn unlock_before_wait(&self) {
        if self.clear_locked() == Unlocked::MayHaveWaiters {
            self.unlock_slow();
        }
    }

    /// Clears the holder and its bit of the word.
    #[inline]
    fn clear_locked(&self) -> Unlocked {
        if probe::ENABLED {
            self.holder.store(0, Ordering::Relaxed);
        }
        self.word.unlock()
    }

    /// Wakes a waiter if necessary. Returns whether the mutex was handed over.
    /// Go: Mutex.unlockSlow.
    #[cold]
    fn unlock_slow(&self) -> bool {
        if forked::is_child() {
            self.word.forget_waiters_of_parent();
            return false;
        }
        self.word.must_wake_waiter() && self.wake_one()
    }

    /// Wakes the first waiter, or hands the mutex over to it. Returns whether the mutex was handed
    /// over.
    fn wake_one(&self) -> bool {
        let mut held = self.queue.lock();
        let remove_first = || {
            let waiter = held.fire_next()?;
            Some(Removed { waiter, was_last: held.is_empty() })
        };
        // SAFETY: the slot of every waiter in this queue is a `Ticket`, in the frame of that
        // waiter.
        let ticket = |taken: &Taken| unsafe { &*taken.slot().cast::<Ticket>() };
        let to_wake = self.word.wake_waiter(
            remove_first,
            |taken| ticket(taken).handed.set(true),
            |taken| clock::now() - ticket(taken).since.get() >= STARVATION_THRESHOLD_NANOS,
        );
        match to_wake {
            ToWake::None => false,
            ToWake::Contender(taken) => {
                held.ready(taken.g());
                false
            }
            ToWake::Holder(taken) => {
                held.ready(taken.g());
                true
            }
        }
    }
}

/// A mutual exclusion lock that protects a value, for goroutines and threads.
///
/// While a goroutine waits for the mutex it is parked, and its thread runs other goroutines. There
/// is no poisoning: if a holder panics, the mutex is released.
///
/// ```
/// use gosched::{go, sync::Mutex};
/// use std::sync::Arc;
///
/// let count = Arc::new(Mutex::new(0));
/// let handles: Vec<_> = (0..100)
///     .map(|_| {
///         let count = count.clone();
///         go(move || *count.lock() += 1)
///     })
///     .collect();
/// handles.into_iter().for_each(|handle| handle.join().unwrap());
/// assert_eq!(*count.lock(), 100);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    raw: RawMutex,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives access to the value to one holder at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl Default for RawMutex {
    fn default() -> RawMutex {
        RawMutex::new()
    }
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { raw: RawMutex::new(), value: UnsafeCell::new(value) }
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Acquires the mutex. Blocks until it is free.
    ///
    /// Dropping the returned guard releases the mutex. The mutex is not reentrant: a goroutine that
    /// already holds it blocks forever.
    #[inline]
    #[doc(alias = "Lock")]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.raw.lock_fast() {
            self.lock_slow(None);
        }
        self.guard()
    }

    /// Takes the mutex, and waits if necessary, but not longer than until `until`. Returns false if
    /// that time limit was reached. Unlike [`RawMutex::lock_slow`], may unwind.
    #[cold]
    fn lock_slow(&self, until: Option<u64>) -> bool {
        self.raw.lock_in_child() || {
            before_wait();
            self.raw.compete(until)
        }
    }

    /// Like [`Mutex::lock`], for runtime code that must not unwind halfway: it does not resume an
    /// exit that was caught.
    #[inline]
    pub(crate) fn lock_no_unwind(&self) -> MutexGuard<'_, T> {
        self.raw.lock();
        self.guard()
    }

    /// Returns a guard. The caller has just acquired the mutex.
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Acquires the mutex if that is possible without blocking. Returns `None` otherwise.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        (self.raw.try_lock() || self.raw.lock_in_child()).then(|| self.guard())
    }

    /// Acquires the mutex like [`Mutex::lock`], but waits at most `duration`. Returns `None` if the
    /// mutex was not free in time.
    pub fn try_lock_for(&self, duration: Duration) -> Option<MutexGuard<'_, T>> {
        let taken = self.raw.try_lock() || self.lock_slow(Some(clock::after(duration)));
        taken.then(|| self.guard())
    }

    /// Returns a mutable reference to the value. No locking is necessary, because `&mut self` is
    /// exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    pub(crate) fn raw(&self) -> &RawMutex {
        &self.raw
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_struct("Mutex").field("value", &&*guard).finish(),
            None => f.write_str("Mutex { <locked> }"),
        }
    }
}

/// A guard that gives access to the value of a [`Mutex`], and releases the mutex when dropped.
#[must_use = "the mutex is free again as soon as the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Makes the guard `!Send`, as in std: the goroutine or thread that locked the mutex unlocks
    /// it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared reference to the guard gives only a shared reference to the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(crate) fn mutex(guard: &MutexGuard<'a, T>) -> &'a Mutex<T> {
        guard.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: held — as long as the guard exists.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: held — as long as the guard exists; `&mut self` makes this the only reference.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: held — by this guard.
        unsafe { self.mutex.raw.unlock() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
