//! When the first timer is due, and which sleeping M wakes for it. `run::timers` describes the
//! protocol. This module never fires a timer and never wakes an M: `run::timers` does both.

use crate::gmp::m::M;
use crate::gmp::timer::NEVER;
use crate::sched::state::global::Locked;
use crate::sys::cache_padded::CachePadded;
use crate::sys::clock;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A time before which no timer is due; `NEVER` if there is no timer. It may be too late for a
/// moment: see `run::timers::refresh_after_firing`.
pub(crate) static EARLIEST: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(NEVER));

/// When the timekeeper wakes; 0 if there is no timekeeper.
/// Go: sched.pollUntil.
pub(crate) static TIMEKEEPER_WAKES_AT: AtomicU64 = AtomicU64::new(0);

/// Returns whether a timer may be due.
#[inline]
pub(crate) fn are_due() -> bool {
    let earliest = EARLIEST.load(Ordering::Relaxed);
    earliest != NEVER && earliest <= clock::now()
}

/// Returns the time until the first timer is due, in nanoseconds. Returns `None` if there is no
/// timer, or if time is virtual.
pub(crate) fn until_next() -> Option<u64> {
    // PAIR timers: in one SeqCst order with a thread that adds a timer.
    let earliest = EARLIEST.load(Ordering::SeqCst);
    (earliest != NEVER && !clock::is_virtual()).then(|| earliest.saturating_sub(clock::now()))
}

/// Returns whether there is a timer but no timekeeper. Called after a heavy barrier by a thread
/// that has made a P idle without going to sleep as a possible timekeeper.
pub(crate) fn is_timekeeper_missing() -> bool {
    // PAIR timers: in one SeqCst order with a thread that adds a timer.
    EARLIEST.load(Ordering::SeqCst) != NEVER && TIMEKEEPER_WAKES_AT.load(Ordering::SeqCst) == 0
}

/// Takes the role of timekeeper from `m`, if `m` holds it. Returns whether `m` held it. Called
/// under the lock.
pub(crate) fn resign_timekeeper(locked: &mut Locked, m: &'static M) -> bool {
    let was = locked.timekeeper.is_some_and(|keeper| ptr::eq(keeper, m));
    if was {
        locked.timekeeper = None;
        // PAIR timers: in one SeqCst order with a thread that adds a timer.
        TIMEKEEPER_WAKES_AT.store(0, Ordering::SeqCst);
    }
    was
}
