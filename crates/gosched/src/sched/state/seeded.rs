//! Random choices of the seeded mode, which `boot::seed` turns on. This module never queues or
//! steals a G: its callers act on the draw.

use crate::gmp::m::M;
use crate::probe::field::PreemptReason;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) static ON: AtomicBool = AtomicBool::new(false);

/// Returns true once in `times` calls on average if the mode is on; false otherwise.
#[inline]
pub(crate) fn draw_one_in(m: &M, times: u32) -> bool {
    ON.load(Ordering::Relaxed) && m.p().is_some_and(|p| p.random.next().is_multiple_of(times))
}

/// Returns whether a G that should run next goes to the tail of the queue instead.
/// Go: randomizeScheduler.
#[inline]
pub(crate) fn draw_push_to_tail(m: &M) -> bool {
    draw_one_in(m, 2)
}

/// Sometimes requests that the running G yield when it next leaves the runtime.
pub(crate) fn draw_yield(m: &M) {
    if draw_one_in(m, 8) {
        m.request_preempt(PreemptReason::Seeded, 0);
    }
}

/// Returns whether a P steals before it takes from its own queue.
#[inline]
pub(crate) fn draw_steal_first(m: &M) -> bool {
    draw_one_in(m, 4)
}
