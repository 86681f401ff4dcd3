//! Mutual exclusion between goroutines and threads, with the two modes of Go's mutex.
//!
//! *Normal mode*: the first caller that finds the mutex free takes it, and a waiter that was woken
//! competes with new callers. This is fast, because callers that already run need no switch. A
//! woken waiter that does not get the mutex within a millisecond makes it *starving*: each holder
//! then hands the mutex directly to the first waiter of the queue, until the mutex goes to a waiter
//! that has waited for less than a millisecond or is the last one in the queue.
//!
//! The bits of the word:
//! - [`LOCKED`]: a goroutine or a thread holds the mutex.
//! - [`PARKED`]: the queue is not empty.
//! - [`WOKEN`]: a contender is awake, that is a waiter that was woken or a caller that spins, so
//!   that `unlock` need not wake another.
//! - [`STARVING`]: the mutex is starving.
//!
//! `PARKED` and `STARVING` are changed only under the queue's lock. `STARVING` is set only while
//! the mutex is locked.
//!
//! The holder, to unlock:
//! 1. clears `LOCKED`; callers do not take a starving mutex, even if it is free;
//! 2. if a waiter is parked, and no other caller has taken the mutex or is awake: acquires the
//!    queue's lock, checks again, and removes the first waiter. It sets `LOCKED` for that waiter
//!    (starving mode), or `WOKEN` (normal mode).
//!
//! A waiter:
//! 1. under the queue's lock, while the mutex is locked or starving: sets `PARKED`, and clears
//!    `WOKEN` if that was set for this waiter, in one step;
//! 2. parks.
//!
//! No waiter is missed. The holder at the moment of that step finds `PARKED` when it unlocks. If
//! the mutex is starving and free at that moment, its last holder has yet to acquire the queue's
//! lock.
//!
//! A contender for which `WOKEN` was set, by itself or by the holder that woke it, clears the bit
//! when it gets the mutex or before it parks. If the bit was set for two contenders, the first one
//! clears it; at worst one more waiter is woken than necessary.
//!
//! Without contention, a lock or an unlock never acquires the queue's lock.

use super::parking::{Guarded, WaitOptions, WaitOutcome};
use crate::block::before_wait;
use crate::block::waiter::WaitQueue;
use crate::gmp::current;
use crate::gmp::reason::WaitReason;
use crate::probe;
use crate::sched;
use crate::sys::clock;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const LOCKED: u32 = 1;
const PARKED: u32 = 2;
const WOKEN: u32 = 4;
const STARVING: u32 = 8;

/// How long a waiter competes before the mutex becomes starving, in nanoseconds: a millisecond, as
/// in Go.
/// Go: starvationThresholdNs.
const STARVATION_THRESHOLD_NANOS: u64 = 1_000_000;

/// How often a caller spins before it parks.
const MAX_SPINS: u32 = 4;

/// A mutex without a value.
/// Go: sync.Mutex.
#[derive(Debug)]
pub(crate) struct RawMutex {
    word: AtomicU32,
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

/// The state in which a contender parks.
#[derive(Clone, Copy, Debug)]
struct Contender {
    /// `WOKEN` was set for this contender.
    awake: bool,
    /// The contender has waited before, so it enters the queue at the front.
    waited: bool,
    /// The contender has waited for longer than the threshold.
    starving: bool,
}

impl RawMutex {
    pub(crate) const fn new() -> RawMutex {
        let queue = Guarded::new(WaitQueue::new());
        RawMutex { word: AtomicU32::new(0), queue, holder: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let now = self.word.load(Ordering::Relaxed);
        let taken = now & (LOCKED | STARVING) == 0 && self.change(now, now | LOCKED);
        if taken {
            self.record_holder();
        }
        taken
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if !self.lock_fast() {
            self.lock_slow(None);
        }
    }

    /// Takes the mutex if it is free and has no waiters. Does not wait.
    #[inline]
    fn lock_fast(&self) -> bool {
        let taken = self.change(0, LOCKED);
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

    #[inline]
    fn change(&self, from: u32, to: u32) -> bool {
        // PAIR mutex: sees what the last holder did; publishes what this thread did.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes the mutex, and waits if necessary, but not longer than until `until`. Returns false if
    /// that time limit was reached.
    /// Go: Mutex.lockSlow.
    #[cold]
    pub(crate) fn lock_slow(&self, until: Option<u64>) -> bool {
        let taken = self.compete(until);
        if taken {
            self.record_holder();
        }
        taken
    }

    fn compete(&self, until: Option<u64>) -> bool {
        let ticket = Ticket { since: Cell::new(0), handed: Cell::new(false) };
        // `awake`: `WOKEN` was set for this caller. `waited`: the caller enters the queue at the
        // front.
        let (mut awake, mut waited, mut spins) = (false, false, 0);
        loop {
            let now = self.word.load(Ordering::Relaxed);
            if now & (LOCKED | STARVING) == 0 {
                let to = if awake { now & !WOKEN } else { now };
                if self.change(now, to | LOCKED) {
                    return true;
                }
                continue;
            }
            if spins < MAX_SPINS && now & STARVING == 0 && sched::can_spin() {
                // The holder may be running, and about to unlock: with `WOKEN` set it need not wake
                // a waiter.
                if !awake && now & (WOKEN | PARKED) == PARKED {
                    awake = self.change(now, now | WOKEN);
                }
                spins += 1;
                (0..30).for_each(|_| std::hint::spin_loop());
                continue;
            }
            let now = clock::now();
            if !waited {
                ticket.since.set(now);
            }
            let starving = now - ticket.since.get() > STARVATION_THRESHOLD_NANOS;
            let parked = self.park(&ticket, Contender { awake, waited, starving }, until);
            match parked {
                // The mutex became free: try again.
                Ok(()) => {}
                Err(WaitOutcome::TimedOut) => return false,
                Err(WaitOutcome::Woken) if ticket.handed.get() => {
                    // PAIR mutex: sees what the last holder did.
                    self.word.load(Ordering::Acquire);
                    return true;
                }
                Err(WaitOutcome::Woken) => {
                    (awake, waited) = (true, true);
                    spins = 0;
                }
            }
        }
    }

    /// Parks while the mutex is locked or starving. Returns `Ok` if it is neither.
    fn park(
        &self,
        ticket: &Ticket,
        contender: Contender,
        until: Option<u64>,
    ) -> Result<(), WaitOutcome> {
        let wait = WaitOptions {
            reason: WaitReason::Mutex,
            holders: self.holder.as_ptr().cast(),
            queue: |queue: &mut WaitQueue| queue,
            first: contender.waited,
            ticket: std::ptr::from_ref(ticket).cast_mut().cast(),
            until,
            gave_up: Some(&|held| {
                if held.is_empty() {
                    self.word.fetch_and(!(PARKED | STARVING), Ordering::Relaxed);
                }
            }),
        };
        self.queue.wait(&wait, |_| {
            loop {
                let now = self.word.load(Ordering::Relaxed);
                if now & (LOCKED | STARVING) == 0 {
                    return Some(());
                }
                let mut to = now | PARKED;
                if contender.awake {
                    to &= !WOKEN;
                }
                if contender.starving && now & LOCKED != 0 {
                    to |= STARVING;
                }
                if self.change(now, to) {
                    return None;
                }
            }
        })
    }

    /// Releases the mutex.
    ///
    /// # Safety
    /// - **held**: the caller holds the mutex.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        if self.clear_locked() && self.unlock_slow() {
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
        if self.clear_locked() {
            self.unlock_slow();
        }
    }

    /// Clears `LOCKED`. Returns whether other bits are set, so that a waiter may have to be woken.
    #[inline]
    fn clear_locked(&self) -> bool {
        if probe::ENABLED {
            self.holder.store(0, Ordering::Relaxed);
        }
        // PAIR mutex: publishes what this holder did.
        self.word.fetch_sub(LOCKED, Ordering::Release) != LOCKED
    }

    /// Wakes a waiter if necessary. Returns whether the mutex was handed over.
    /// Go: Mutex.unlockSlow.
    #[cold]
    fn unlock_slow(&self) -> bool {
        let now = self.word.load(Ordering::Relaxed);
        must_wake_waiter(now) && self.wake_one()
    }

    /// Wakes the first waiter, or hands the mutex over to it. Returns whether the mutex was handed
    /// over.
    fn wake_one(&self) -> bool {
        let mut held = self.queue.lock();
        let now = self.word.load(Ordering::Relaxed);
        if !must_wake_waiter(now) {
            return false;
        }
        let taken = held.fire_next();
        let none_left = if held.is_empty() { PARKED } else { 0 };
        let Some(taken) = taken else {
            // All waiters have given up.
            self.word.fetch_and(!(PARKED | STARVING), Ordering::Relaxed);
            return false;
        };
        // SAFETY: the slot of every waiter in this queue is a `Ticket`, in the frame of that
        // waiter.
        let ticket = unsafe { &*taken.slot().cast::<Ticket>() };
        let handed = now & STARVING != 0;
        let (mut set, mut clear) = (WOKEN, none_left);
        if handed {
            ticket.handed.set(true);
            set = LOCKED;
            if none_left != 0 || clock::now() - ticket.since.get() < STARVATION_THRESHOLD_NANOS {
                clear |= STARVING;
            }
        }
        loop {
            let now = self.word.load(Ordering::Relaxed);
            if self.change(now, (now | set) & !clear) {
                break;
            }
        }
        held.ready(taken.g());
        handed
    }
}

/// Returns whether a thread that has released the mutex must wake a waiter, given the word `now`.
///
/// If another caller has taken the mutex since, the `unlock` of that caller does it. In normal
/// mode, a contender that is awake makes it unnecessary too.
fn must_wake_waiter(now: u32) -> bool {
    if now & STARVING != 0 {
        now & LOCKED == 0
    } else {
        now & PARKED != 0 && now & (LOCKED | WOKEN) == 0
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
            before_wait();
            self.raw.lock_slow(None);
        }
        self.guard()
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
        self.raw.try_lock().then(|| self.guard())
    }

    /// Acquires the mutex like [`Mutex::lock`], but waits at most `duration`. Returns `None` if the
    /// mutex was not free in time.
    pub fn try_lock_for(&self, duration: Duration) -> Option<MutexGuard<'_, T>> {
        let taken = self.raw.try_lock() || {
            before_wait();
            self.raw.lock_slow(Some(clock::after(duration)))
        };
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
