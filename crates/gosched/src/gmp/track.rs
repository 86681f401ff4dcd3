//! How long goroutines wait for a P, and for locks: measured for few of them, which stand for all.
//!
//! One in so many departures ([`TRACKING_PERIOD`]) of a P's goroutines, and one in so many that are started, is
//! *tracked*: a bit beside its state. Only one that leaves has it: the wait it is measured in stands for as many others,
//! and must not be one that comes later. A state change finds the bit where it looks for the state anyway, so
//! all others pay nothing: no clock, no test.

use super::g::G;
use super::reason::WaitReason;
use super::state::GState;
use crate::probe::times;
use crate::sys::clock;
use std::ptr;
use std::sync::atomic::Ordering;

/// One in so many departures is tracked. A prime: goroutines that take turns are all met. Go tracks one in 8;
/// reading the clock twice takes longer than a switch, and one in 251 was still seen in a benchmark.
/// Go: gTrackingPeriod.
pub(crate) const TRACKING_PERIOD: u32 = 1021;

/// A tracked G goes from one state to the next.
#[cold]
#[inline(never)]
pub(crate) fn record_transition(g: &G, from: GState) {
    let now = clock::real_now();
    // It is marked while it runs, or is dead: so it was tracked when it came into `from`.
    let waited = now.saturating_sub(g.state_since.load(Ordering::Relaxed));
    match from {
        GState::Runnable => times::record_time_to_run(ptr::from_ref(g).addr(), waited),
        GState::Waiting if is_mutex_wait(g.reason()) => {
            times::record_mutex_wait(waited * u64::from(TRACKING_PERIOD));
        }
        _ => {}
    }
    g.state_since.store(now, Ordering::Relaxed);
}

/// Go's reasons that count as waiting for a lock.
/// Go: waitReason.isMutexWait.
fn is_mutex_wait(reason: WaitReason) -> bool {
    matches!(reason, WaitReason::Mutex | WaitReason::RwLockRead | WaitReason::RwLockWrite)
}
