//! The choices of the seeded mode: `boot::seed` turns it on.

use crate::gmp::m::M;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) static ON: AtomicBool = AtomicBool::new(false);

/// One time in `times`, where the mode is on.
#[inline]
pub(crate) fn draw_one_in(m: &'static M, times: u32) -> bool {
    ON.load(Ordering::Relaxed) && m.p().is_some_and(|p| p.random.next().is_multiple_of(times))
}

/// Whether a G that should run next goes to the tail instead.
/// Go: randomizeScheduler.
#[inline]
pub(crate) fn draw_push_to_tail(m: &'static M) -> bool {
    draw_one_in(m, 2)
}

/// Whether a P looks elsewhere first.
#[inline]
pub(crate) fn draw_steal_first(m: &'static M) -> bool {
    draw_one_in(m, 4)
}
