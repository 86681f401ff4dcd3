//! Proofs that the compiler checks: the caller runs on an M ([`OnM`]); the caller owns the P of
//! that M ([`OwnedP`]); the caller is a goroutine that may leave the M ([`MayMove`]).
//!
//! A function that must run on an M takes a token instead of a reference to the M, which any thread
//! may have. Tokens are neither `Send` nor `Copy`, and borrow from the guard that keeps preemption
//! off (`switch::boundary::InRuntime`). A function that switches to another goroutine or begins a
//! marked call consumes a [`MayMove`]: the goroutine may continue on another M. All other functions
//! take an [`OnM`], which is lent. g0 never moves, so g0 has an [`OnM`] only.
//!
//! Only the holder of an [`OwnedP`] can push to the P's queue, take from it as its owner, or start
//! a slice; the queue of a P without an M is emptied by `P::drain`. An M acquires a P with an
//! [`OnM`] and releases it with an [`OwnedP`]; only a retaker takes the P of another M.
//!
//! The compiler does not check one rule: a caller that is inside the runtime and calls `enter`
//! again uses no token across that call, and leaves again before it switches. A switch checks that
//! preemption was turned off once, in builds with debug assertions.
//!
//! Tokens are passed by value, as one or two registers: a reference to a token would keep it in
//! memory. This module never checks that a token is true: the functions that make one from nothing
//! are unsafe.

use super::g::G;
use super::m::{Departure, M};
use super::p::{Caches, P};
use crate::probe;
use crate::probe::event::EventKind;
use crate::protocol::run_queue::{CAPACITY, RunQueue, Stolen};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::Ordering;

/// Proof that the caller is a goroutine inside the runtime that runs on this M. A function that may
/// move the goroutine to another M consumes it.
#[derive(Debug)]
pub(crate) struct MayMove<'r>(OnM<'r>);

impl MayMove<'_> {
    /// Creates the token of the M that the calling goroutine runs on.
    ///
    /// # Safety
    /// - **carried**, **only**: as for [`OnM::current`].
    #[inline(always)]
    pub(crate) unsafe fn current<'r>() -> MayMove<'r> {
        // SAFETY: carried, only — promised by the caller.
        MayMove(unsafe { OnM::current() })
    }

    /// Lends the token of the M.
    #[inline(always)]
    pub(crate) fn on_m(&mut self) -> OnM<'_> {
        self.0.lend()
    }

    /// Returns the proof that the M has its P, or `None` if the M has no P.
    #[inline(always)]
    pub(crate) fn own_p(&mut self) -> Option<OwnedP<'_>> {
        self.0.own_p()
    }
}

impl Deref for MayMove<'_> {
    type Target = M;

    #[inline(always)]
    fn deref(&self) -> &M {
        self.0.m
    }
}

/// Proof that the caller runs on this M, with preemption off or on g0.
#[derive(Debug)]
pub(crate) struct OnM<'r> {
    m: &'static M,
    /// Borrowed from a guard, and not `Send`.
    guard: PhantomData<(&'r mut (), *mut ())>,
}

impl<'r> OnM<'r> {
    /// Creates the token of the M that the caller runs on.
    ///
    /// # Safety
    /// - **carried**: the caller is a goroutine of this runtime with preemption off, or runs as the
    ///   thread of an M, as long as the token is used.
    /// - **only**: the caller uses no other token meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn current() -> OnM<'r> {
        // SAFETY: carried — promised by the caller.
        OnM { m: unsafe { M::current() }, guard: PhantomData }
    }

    /// Creates the token of `m`, for its own thread.
    ///
    /// # Safety
    /// - **own**: the caller runs as the thread of `m`, or as its goroutine with preemption off,
    ///   until `'r` ends.
    /// - **only**: the caller uses no other token meanwhile.
    pub(crate) unsafe fn of(m: &'static M) -> OnM<'r> {
        OnM { m, guard: PhantomData }
    }

    /// Returns the M, for code that needs no proof.
    #[inline(always)]
    pub(crate) fn m(&self) -> &'static M {
        self.m
    }

    /// Lends the token to a function that takes it by value.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> OnM<'_> {
        OnM { m: self.m, guard: PhantomData }
    }

    /// Returns the proof that the M has its P, or `None` if the M has no P.
    #[inline(always)]
    pub(crate) fn own_p(&mut self) -> Option<OwnedP<'_>> {
        let p = self.m.p()?;
        Some(OwnedP { on: self.lend(), p })
    }

    /// Acquires `p`, which the caller owns.
    /// Go: acquirep.
    #[inline]
    pub(crate) fn acquire_p(self, p: &'static P) -> OwnedP<'r> {
        self.m.acquire_p(p);
        OwnedP { p, on: self }
    }

    /// Stores what remains to be done after the next switch.
    #[inline(always)]
    pub(crate) fn set_departure(&mut self, departure: Departure) {
        // SAFETY: owner — this is the M's own thread, and no reference to the value is kept.
        unsafe { self.m.pending_departure.as_ptr().write(departure) };
    }

    /// Takes what [`OnM::set_departure`] has stored.
    #[inline(always)]
    pub(crate) fn take_departure(&mut self) -> Departure {
        // SAFETY: owner — as above.
        unsafe { self.m.pending_departure.as_ptr().replace(Departure::None) }
    }
}

impl Deref for OnM<'_> {
    type Target = M;

    #[inline(always)]
    fn deref(&self) -> &M {
        self.m
    }
}

/// Proof that the caller owns this P: the caller's M has it.
#[derive(Debug)]
pub(crate) struct OwnedP<'r> {
    p: &'static P,
    on: OnM<'r>,
}

impl<'r> OwnedP<'r> {
    /// Releases the P: the caller owns it, but the M no longer has it.
    /// Go: releasep.
    pub(crate) fn release(self) -> (&'static P, OnM<'r>) {
        if probe::is_recording() {
            self.on.record(EventKind::ReleaseP { p: self.p.id });
        }
        self.on.release_p(self.p);
        (self.p, self.on)
    }

    /// Lends the token to a function that takes it by value.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> OwnedP<'_> {
        OwnedP { on: self.on.lend(), p: self.p }
    }

    /// Lends the token of the M that has the P.
    #[inline(always)]
    pub(crate) fn on_m(&mut self) -> OnM<'_> {
        self.on.lend()
    }

    /// Returns the queue of the P, for operations that only the owner performs.
    #[inline(always)]
    pub(crate) fn queue(&self) -> &RunQueue<G, CAPACITY> {
        &self.p.queue
    }

    /// Steals from the queue of `victim`: see [`RunQueue::steal_into`].
    pub(crate) fn steal_from(&self, victim: &P, pause: Option<fn()>) -> Option<Stolen<G>> {
        victim.queue.steal_into(&self.p.queue, pause)
    }

    /// Counts that the P stole `count` Gs from another P.
    pub(crate) fn count_steal(&self, count: u64) {
        self.p.steals.add(1);
        self.p.stolen.add(count);
    }

    /// Counts a goroutine that starts on this P.
    #[inline]
    pub(crate) fn count_started(&self) {
        self.p.started.add(1);
    }

    /// Counts a goroutine that ends on this P.
    #[inline]
    pub(crate) fn count_ended(&self) {
        self.p.ended.add(1);
    }

    /// Counts a departure. Returns whether the departing goroutine must be tracked.
    #[inline]
    pub(crate) fn count_departure(&self) -> bool {
        let left = self.p.departures_until_tracked.load(Ordering::Relaxed);
        self.p.departures_until_tracked.store(left.wrapping_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// Sets the number of departures until the next tracked one.
    pub(crate) fn set_departures_until_tracked(&self, departures: u32) {
        self.p.departures_until_tracked.store(departures, Ordering::Relaxed);
    }

    /// Records that the next G inherits the current slice.
    #[inline]
    pub(crate) fn inherit_slice(&self) {
        let now = self.p.inherited.load(Ordering::Relaxed);
        self.p.inherited.store(now + 1, Ordering::Relaxed);
    }

    /// Starts a new slice.
    #[inline]
    pub(crate) fn start_slice(&self) {
        self.p.inherited.store(0, Ordering::Relaxed);
        self.p.schedtick.store(self.p.tick().wrapping_add(1), Ordering::Relaxed);
    }

    /// Updates the number of dead Gs in the cache, for reports.
    #[inline(always)]
    pub(crate) fn publish_free_gs(&mut self) {
        let count = self.caches().free.len() as u32;
        self.p.free_g_count.store(count, Ordering::Relaxed);
    }

    /// Returns the caches of the P.
    #[inline(always)]
    pub(crate) fn caches(&mut self) -> &mut Caches {
        // SAFETY: owner — the M has the P, the caller runs on the M, and the result borrows the
        // only token.
        unsafe { self.p.caches.get() }
    }
}

impl Deref for OwnedP<'_> {
    type Target = P;

    #[inline(always)]
    fn deref(&self) -> &P {
        self.p
    }
}
