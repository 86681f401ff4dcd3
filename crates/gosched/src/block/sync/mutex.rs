//! Mutual exclusion between goroutines, and threads.
//!
//! Go's two modes. *Normal*: whoever comes while the lock is free takes it, and one who was woken
//! competes; fast, since those who run need no switch. One who was woken and does not get it for a
//! millisecond turns the lock *starving*: then it goes from hand to hand, in the order of waiting, until
//! one who gets it has waited less, or is the last.
//!
//! The word: [`LOCKED`]; [`PARKED`]: somebody is in the queue; [`WOKEN`]: one who was woken, or who has not
//! waited yet, competes, so nobody need be woken; [`STARVING`]. `PARKED` and `STARVING` are changed under
//! the queue's lock only, `STARVING` is set only while the mutex is locked.
//!
//! Holder: 1. takes `LOCKED` back; nobody else takes a starving lock; 2. if somebody is parked, and nobody has
//! taken the lock or competes: under the queue's lock, looks again, and takes the first out: gives it the
//! lock (starving), or leaves `WOKEN` for it.
//! One who waits: 1. under the queue's lock, while the word is locked or starving, sets `PARKED`, and takes
//! back `WOKEN` if that was its own, in one step; 2. parks. Who holds the lock at that step finds `PARKED` when
//! it gives it back; where the lock is starving and free, its last holder has yet to come for the queue.
//!
//! Whoever sets `WOKEN`, for itself or for the one it wakes, that one takes it back when it has the lock, or
//! before it parks. Where two have set it the first takes it back: the worst is that one more is woken.

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

/// How long one waits before the lock is starving, in nanoseconds: Go's millisecond.
/// Go: starvationThresholdNs.
const STARVATION_THRESHOLD_NANOS: u64 = 1_000_000;

/// How often one looks before it waits.
const MAX_SPINS: u32 = 4;

/// The part that knows nothing of the value.
/// Go: sync.Mutex.
#[derive(Debug)]
pub(crate) struct RawMutex {
    word: AtomicU32,
    queue: Guarded<WaitQueue>,
    /// Who has it, for whoever looks: a goroutine's number. Written by the one who has it; 0 also for a moment
    /// after it was taken, and before it is given back.
    holder: AtomicU64,
}

/// What one who waits shows to whoever takes it out.
struct Ticket {
    /// When it first waited.
    since: Cell<u64>,
    /// It has the lock: it was handed over.
    handed: Cell<bool>,
}

/// How one parks.
#[derive(Clone, Copy, Debug)]
struct Contender {
    /// `WOKEN` is its own.
    awake: bool,
    /// It has waited before.
    waited: bool,
    /// And for too long.
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

    /// Takes it if nobody has it, or waits for it.
    #[inline]
    fn lock_fast(&self) -> bool {
        let taken = self.change(0, LOCKED);
        if taken {
            self.record_holder();
        }
        taken
    }

    /// By whoever has just taken it.
    #[inline]
    fn record_holder(&self) {
        if probe::ENABLED {
            self.holder.store(current::goroutine_id(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn change(&self, from: u32, to: u32) -> bool {
        // PAIR mutex: sees what the last holder did; publishes what this one did.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Waits, until `until` if there is a limit. False: the time is over.
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
        // Awake: `WOKEN` is its own. Waited: it goes before those who have not.
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
                // The holder runs, perhaps, and not for long: it need not wake anybody.
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
                // It became free.
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

    /// Parks while the word is locked. `Ok`: it is not.
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

    /// # Safety
    /// - **held**: by the caller.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        if self.clear_locked() && self.unlock_slow() {
            // It was handed over: whoever has it now is next.
            sched::yield_to_ready();
        }
    }

    /// As [`RawMutex::unlock`], by somebody who is about to wait anyway.
    ///
    /// # Safety
    /// - **held**: by the caller.
    pub(crate) unsafe fn unlock_before_wait(&self) {
        if self.clear_locked() {
            self.unlock_slow();
        }
    }

    /// True if there may be something to do for others.
    #[inline]
    fn clear_locked(&self) -> bool {
        if probe::ENABLED {
            self.holder.store(0, Ordering::Relaxed);
        }
        // PAIR mutex: publishes what this holder did.
        self.word.fetch_sub(LOCKED, Ordering::Release) != LOCKED
    }

    /// True if it was handed over.
    /// Go: Mutex.unlockSlow.
    #[cold]
    fn unlock_slow(&self) -> bool {
        let now = self.word.load(Ordering::Relaxed);
        must_wake_waiter(now) && self.wake_one()
    }

    /// Wakes the first who waits, or hands the lock over: true.
    fn wake_one(&self) -> bool {
        let mut held = self.queue.lock();
        let now = self.word.load(Ordering::Relaxed);
        if !must_wake_waiter(now) {
            return false;
        }
        let taken = held.fire_next();
        let none_left = if held.is_empty() { PARKED } else { 0 };
        let Some(taken) = taken else {
            // All have given up.
            self.word.fetch_and(!(PARKED | STARVING), Ordering::Relaxed);
            return false;
        };
        // SAFETY: every waiter of this queue has a ticket, in a frame that waits.
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

/// Whether one who has given the lock back should do something for those who wait: nobody has taken it
/// since, who would have to; and nobody competes, or may not.
fn must_wake_waiter(now: u32) -> bool {
    if now & STARVING != 0 {
        now & LOCKED == 0
    } else {
        now & PARKED != 0 && now & (LOCKED | WOKEN) == 0
    }
}

/// A value that one goroutine or thread at a time may use. No poisoning: a holder that panics gives it back.
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

// SAFETY: the lock hands the value to one at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl Default for RawMutex {
    fn default() -> RawMutex {
        RawMutex::new()
    }
}

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { raw: RawMutex::new(), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until nobody else holds it.
    #[inline]
    #[doc(alias = "Lock")]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.raw.lock_fast() {
            before_wait();
            self.raw.lock_slow(None);
        }
        self.guard()
    }

    /// As [`Mutex::lock`], for code of ours that must not be left half done: an exit that somebody caught
    /// goes on elsewhere.
    #[inline]
    pub(crate) fn lock_no_unwind(&self) -> MutexGuard<'_, T> {
        self.raw.lock();
        self.guard()
    }

    /// For whoever has just taken it.
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| self.guard())
    }

    /// As [`Mutex::lock`], but waits for `duration` at most.
    pub fn try_lock_for(&self, duration: Duration) -> Option<MutexGuard<'_, T>> {
        let taken = self.raw.try_lock() || {
            before_wait();
            self.raw.lock_slow(Some(clock::after(duration)))
        };
        taken.then(|| self.guard())
    }

    /// The value: nobody else has the mutex.
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

/// The right to use a mutex's value; gives it back when dropped.
#[must_use = "the mutex is free again as soon as the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// As std's: whoever locked it unlocks it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared reference to it gives a shared reference to the value.
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
        // SAFETY: held — while the guard lives.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: held — while the guard lives; `&mut self` makes it the only reference.
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
