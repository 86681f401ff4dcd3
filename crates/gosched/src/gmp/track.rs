//! Measures how long goroutines wait for a P and for locks, by sampling.
//!
//! A goroutine in the sample is *tracked*: a bit beside its state is set. One in
//! [`TRACKING_PERIOD`] departures from a P is tracked, and one in 1024 goroutines that are started.
//! The bit is set only when a goroutine departs or starts: its next wait represents that many
//! others, so no later wait may be measured in its place. A state transition tests the bit together
//! with the state, so untracked goroutines pay nothing: no clock, no test. This module never sets
//! the bit: `sched::switch` does.

use super::g::G;
use super::state::GState;
use crate::probe::times;
use crate::probe::wait_reason::WaitReason;
use crate::sys::clock;
use std::ptr;
use std::sync::atomic::Ordering;

/// One in this many departures is tracked. A prime number, so that goroutines that take turns are
/// all sampled. Go tracks one in 8, but reading the clock twice takes longer than a switch, and
/// even one in 251 was visible in a benchmark.
/// Go: gTrackingPeriod.
pub(crate) const TRACKING_PERIOD: u32 = 1021;

/// Records how long a tracked G was in the state `from`, which it leaves.
#[cold]
#[inline(never)]
pub(crate) fn record_transition(g: &G, from: GState) {
    let now = clock::real_now();
    // A G is marked while it runs or is dead, so it was already tracked when it entered a state
    // that is measured below.
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

/// Returns whether Go counts this reason as a wait for a lock.
/// Go: waitReason.isMutexWait.
fn is_mutex_wait(reason: WaitReason) -> bool {
    matches!(reason, WaitReason::Mutex | WaitReason::RwLockRead | WaitReason::RwLockWrite)
}
