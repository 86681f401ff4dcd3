//! When the first timer is due, and which sleeping M wakes for it. `run::timers` has the protocol.

use crate::gmp::m::M;
use crate::gmp::timer::NEVER;
use crate::sched::state::global::Locked;
use crate::sys::cache_padded::CachePadded;
use crate::sys::clock;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// No timer is due before.
pub(crate) static EARLIEST: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(NEVER));

/// Until when the keeper sleeps; 0: there is none.
/// Go: sched.pollUntil.
pub(crate) static TIMEKEEPER_WAKES_AT: AtomicU64 = AtomicU64::new(0);

/// Whether a timer is, or may be, due.
#[inline]
pub(crate) fn are_due() -> bool {
    let earliest = EARLIEST.load(Ordering::Relaxed);
    earliest != NEVER && earliest <= clock::now()
}

/// How long until the first one is due, in nanoseconds. `None`: there is none, or time stands still.
pub(crate) fn until_next() -> Option<u64> {
    // PAIR timers: one order for this and who adds.
    let earliest = EARLIEST.load(Ordering::SeqCst);
    (earliest != NEVER && !clock::is_virtual()).then(|| earliest.saturating_sub(clock::now()))
}

/// Whether somebody should wake for the next one, and nobody will. Asked by whoever has made a P idle
/// without going to sleep as one that may keep the time, after a heavy barrier.
pub(crate) fn is_timekeeper_missing() -> bool {
    // PAIR timers: one order for this and who adds.
    EARLIEST.load(Ordering::SeqCst) != NEVER && TIMEKEEPER_WAKES_AT.load(Ordering::SeqCst) == 0
}

/// An M that slept does not keep any more, if it did. Under the lock.
pub(crate) fn resign_timekeeper(locked: &mut Locked, m: &'static M) -> bool {
    let was = locked.timekeeper.is_some_and(|keeper| ptr::eq(keeper, m));
    if was {
        locked.timekeeper = None;
        // PAIR timers: one order for this and who adds.
        TIMEKEEPER_WAKES_AT.store(0, Ordering::SeqCst);
    }
    was
}
