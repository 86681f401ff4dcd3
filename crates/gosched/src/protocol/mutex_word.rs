//! The word of `sync::Mutex`: it decides which caller gets the mutex, and whether `unlock` wakes a
//! waiter.
//!
//! Invariant: the mutex has at most one holder. While its queue is not empty, a caller is yet to
//! look at the queue: the holder, a contender for which `WOKEN` is set, or a caller that has
//! cleared `LOCKED` and is about to acquire the queue's lock.
//!
//! The bits of the word:
//! - [`LOCKED`]: a caller holds the mutex.
//! - [`PARKED`]: the queue is not empty.
//! - [`WOKEN`]: a contender is awake, that is a waiter that was woken or a caller that spins, so
//!   that `unlock` need not wake another.
//! - [`STARVING`]: the mutex is starving: it is handed to the first waiter, and callers do not take
//!   it, even if it is free.
//!
//! `PARKED` and `STARVING` are changed only under the queue's lock. `STARVING` is set only while
//! the mutex is locked.
//!
//! - Holder, to unlock: 1. clears `LOCKED` ([`unlock`](MutexWord::unlock)); 2. if a waiter is
//!   parked, and no other caller has taken the mutex or is awake
//!   ([`must_wake_waiter`](MutexWord::must_wake_waiter)): acquires the queue's lock, checks again,
//!   and removes the first waiter; sets `LOCKED` for that waiter (starving), or `WOKEN` (not
//!   starving; [`wake_waiter`](MutexWord::wake_waiter)); 3. releases the queue's lock, and makes
//!   the waiter ready.
//! - Contender ([`compete`](MutexWord::compete)): 1. takes the mutex if it is neither locked nor
//!   starving; 2. otherwise, under the queue's lock, while the mutex is locked or starving: sets
//!   `PARKED`, and clears `WOKEN` if that was set for this contender, in one step
//!   ([`mark_parked`](MutexWord::mark_parked)); enters the queue; 3. parks; 4. when it runs again,
//!   holds the mutex if that was handed over, and otherwise continues with step 1, with `WOKEN` set
//!   for it. A contender that times out clears `PARKED` and `STARVING` under the queue's lock if
//!   the queue is empty then ([`after_timeout`](MutexWord::after_timeout)).
//!
//! Why no waiter is missed: the holder at the moment of the contender's step 2 finds `PARKED` when
//! it unlocks. If the mutex is starving and free at that moment, its last holder has yet to acquire
//! the queue's lock.
//!
//! Why there are not two holders: if the mutex is starving, only a caller that holds the queue's
//! lock, and has found the mutex free under that lock, sets `LOCKED`. Otherwise `LOCKED` is set by
//! an exchange of a word that does not contain it.
//!
//! A contender for which `WOKEN` was set, by itself or by the holder that woke it, clears the bit
//! when it gets the mutex or before it parks. If the bit was set for two contenders, the first one
//! clears it; at worst one more waiter is woken than necessary.
//!
//! This module never acquires the queue's lock, never parks a caller, and never reads a clock: its
//! callers do all three.

use crate::sys::atomic::{AtomicU32, Ordering, const_fn};

/// A caller holds the mutex.
/// Go: mutexLocked.
pub(crate) const LOCKED: u32 = 1;
/// The queue is not empty.
pub(crate) const PARKED: u32 = 2;
/// A contender is awake.
/// Go: mutexWoken.
pub(crate) const WOKEN: u32 = 4;
/// The mutex is handed to the first waiter.
/// Go: mutexStarving.
pub(crate) const STARVING: u32 = 8;

/// The word of a mutex (see the top of this file).
/// Go: Mutex.state.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct MutexWord(AtomicU32);

/// The state of a contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    /// `WOKEN` was set for this contender.
    pub(crate) awake: bool,
    /// The contender has waited before, so it enters the queue at the front.
    pub(crate) waited: bool,
}

/// The result of one attempt to take the mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Taken,
    /// The mutex is locked, and not starving.
    Locked,
    Starving,
}

/// Whether a contender must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkDecision {
    /// The contender must enter the queue, before it releases the queue's lock.
    Waits,
    /// The mutex is free: the contender must try again.
    Free,
}

/// How the wait of a contender ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkOutcome {
    /// The contender did not wait, because the mutex was free.
    Free,
    /// The contender was woken, and competes again.
    Woken,
    /// The mutex was handed over: the contender holds it.
    Handed,
    TimedOut,
}

/// Whether the queue may have waiters when the mutex is unlocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlocked {
    NoWaiter,
    /// A waiter may have to be woken: see [`MutexWord::must_wake_waiter`].
    MayHaveWaiters,
}

/// A waiter that was removed from the queue.
#[derive(Debug)]
pub(crate) struct Removed<W> {
    pub(crate) waiter: W,
    /// The queue is empty now.
    pub(crate) was_last: bool,
}

/// The waiter that the caller must make ready, after it has released the queue's lock.
#[derive(Debug)]
pub(crate) enum ToWake<W> {
    /// No waiter must be woken.
    None,
    /// The waiter competes for the mutex.
    Contender(W),
    /// The waiter holds the mutex.
    Holder(W),
}

impl MutexWord {
    const_fn! {
        pub(crate) fn new() -> MutexWord {
            MutexWord(AtomicU32::new(0))
        }
    }

    /// Takes the mutex if it is free and has no waiters. Returns whether it did.
    #[inline]
    pub(crate) fn lock_fast(&self) -> bool {
        self.change(0, LOCKED)
    }

    /// Takes the mutex if it is neither locked nor starving. Returns whether it did.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        may_take(now) && self.change(now, now | LOCKED)
    }

    #[inline]
    fn change(&self, from: u32, to: u32) -> bool {
        // PAIR mutex: sees what the last holder did; publishes what this thread did.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Competes for the mutex: the steps of a contender. Returns whether the contender holds the
    /// mutex; it does not if it timed out.
    ///
    /// `may_spin` takes the number of times that the contender has spun since it last waited.
    /// `park` performs steps 2 and 3.
    pub(crate) fn compete(
        &self,
        may_spin: impl Fn(u32) -> bool,
        spin: impl Fn(),
        park: impl Fn(Contender) -> ParkOutcome,
    ) -> bool {
        let mut contender = Contender { awake: false, waited: false };
        let mut spins = 0;
        loop {
            match self.attempt(contender) {
                Attempt::Taken => return true,
                Attempt::Locked if may_spin(spins) => {
                    // The holder may be running, and about to unlock: with `WOKEN` set it need not
                    // wake a waiter.
                    contender.awake = contender.awake || self.set_woken();
                    spins += 1;
                    spin();
                    continue;
                }
                Attempt::Locked | Attempt::Starving => {}
            }
            match park(contender) {
                ParkOutcome::Free => {}
                ParkOutcome::TimedOut => return false,
                ParkOutcome::Handed => {
                    // PAIR mutex: sees what the last holder did.
                    self.0.load(Ordering::Acquire);
                    return true;
                }
                ParkOutcome::Woken => {
                    contender = Contender { awake: true, waited: true };
                    spins = 0;
                }
            }
        }
    }

    /// Takes the mutex if it is neither locked nor starving: step 1 of a contender.
    fn attempt(&self, contender: Contender) -> Attempt {
        loop {
            let now = self.0.load(Ordering::Relaxed);
            if now & STARVING != 0 {
                return Attempt::Starving;
            }
            if now & LOCKED != 0 {
                return Attempt::Locked;
            }
            let to = if contender.awake { now & !WOKEN } else { now };
            if self.change(now, to | LOCKED) {
                return Attempt::Taken;
            }
        }
    }

    /// Sets `WOKEN` for a contender that spins, if the holder would otherwise wake a waiter.
    /// Returns whether it did.
    fn set_woken(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        now & (LOCKED | PARKED | WOKEN | STARVING) == LOCKED | PARKED
            && self.change(now, now | WOKEN)
    }

    /// Marks the mutex as one with waiters, unless it is free: step 2 of a contender. Makes a
    /// locked mutex starving if the contender `is_starving`. Called under the queue's lock.
    pub(crate) fn mark_parked(&self, contender: Contender, is_starving: bool) -> ParkDecision {
        loop {
            let now = self.0.load(Ordering::Relaxed);
            if may_take(now) {
                return ParkDecision::Free;
            }
            let mut to = now | PARKED;
            if contender.awake {
                to &= !WOKEN;
            }
            if is_starving && now & LOCKED != 0 {
                to |= STARVING;
            }
            if self.change(now, to) {
                return ParkDecision::Waits;
            }
        }
    }

    /// Updates the word after a contender has timed out and has left the queue. Called under the
    /// queue's lock.
    pub(crate) fn after_timeout(&self, is_queue_empty: bool) {
        if is_queue_empty {
            self.forget_waiters();
        }
    }

    /// Clears `PARKED` and `STARVING`, because the queue is empty.
    fn forget_waiters(&self) {
        self.0.fetch_and(!(PARKED | STARVING), Ordering::Relaxed);
    }

    /// Clears all bits except `LOCKED`, in a forked child: the waiters, and a contender that was
    /// woken, exist only in the parent, and no caller waits in the child.
    pub(crate) fn forget_waiters_of_parent(&self) {
        self.0.fetch_and(LOCKED, Ordering::Relaxed);
    }

    /// Clears `LOCKED`: step 1 of a holder. Called by the holder.
    #[inline]
    pub(crate) fn unlock(&self) -> Unlocked {
        // PAIR mutex: publishes what this holder did.
        match self.0.fetch_sub(LOCKED, Ordering::Release) {
            LOCKED => Unlocked::NoWaiter,
            _ => Unlocked::MayHaveWaiters,
        }
    }

    /// Returns whether a caller that has unlocked the mutex must call [`MutexWord::wake_waiter`].
    ///
    /// If another caller has taken the mutex since, the `unlock` of that caller does it. If the
    /// mutex is not starving, a contender that is awake makes it unnecessary too.
    pub(crate) fn must_wake_waiter(&self) -> bool {
        must_wake_waiter(self.0.load(Ordering::Relaxed))
    }

    /// Wakes the first waiter, or hands the mutex to it, if that is still necessary: step 2 of a
    /// holder. Called under the queue's lock.
    ///
    /// `remove_first` removes the first waiter that has not timed out, and returns `None` if the
    /// queue is empty. `hand_over` records that the waiter holds the mutex, where the waiter reads
    /// it. `is_starving` returns whether the waiter has waited so long that the mutex stays
    /// starving.
    pub(crate) fn wake_waiter<W>(
        &self,
        remove_first: impl FnOnce() -> Option<Removed<W>>,
        hand_over: impl FnOnce(&W),
        is_starving: impl FnOnce(&W) -> bool,
    ) -> ToWake<W> {
        let now = self.0.load(Ordering::Relaxed);
        if !must_wake_waiter(now) {
            return ToWake::None;
        }
        let Some(Removed { waiter, was_last }) = remove_first() else {
            // All waiters have timed out.
            self.forget_waiters();
            return ToWake::None;
        };
        let no_waiter = if was_last { PARKED } else { 0 };
        // This caller holds the queue's lock, so no other caller changes `STARVING`.
        if now & STARVING == 0 {
            self.set_and_clear(WOKEN, no_waiter);
            return ToWake::Contender(waiter);
        }
        hand_over(&waiter);
        let stays_starving = !was_last && is_starving(&waiter);
        let not_starving = if stays_starving { 0 } else { STARVING };
        self.set_and_clear(LOCKED, no_waiter | not_starving);
        ToWake::Holder(waiter)
    }

    /// Sets and clears bits in one step.
    fn set_and_clear(&self, set: u32, clear: u32) {
        loop {
            let now = self.0.load(Ordering::Relaxed);
            if self.change(now, (now | set) & !clear) {
                return;
            }
        }
    }
}

/// Returns whether a caller may take the mutex, given the word `now`.
#[inline]
fn may_take(now: u32) -> bool {
    now & (LOCKED | STARVING) == 0
}

/// See [`MutexWord::must_wake_waiter`].
fn must_wake_waiter(now: u32) -> bool {
    if now & STARVING != 0 {
        now & LOCKED == 0
    } else {
        now & PARKED != 0 && now & (LOCKED | WOKEN) == 0
    }
}
