//! The seeded mode: choices of the scheduler are drawn from a seed, so that tests see more orders.
//!
//! `GOSCHED_SEED=number` turns it on for the process. New and readied Gs go to `run_next` or to the
//! tail, a P sometimes steals before it looks at its own queue, and at probe points a goroutine is
//! asked to yield at its next way out of the runtime. The seed is named in panics and fatal errors.

use super::preempt::{self, Why};
use crate::gmp::m::M;
use crate::probe;
use crate::sys::random;
use std::sync::atomic::{AtomicBool, Ordering};

static ON: AtomicBool = AtomicBool::new(false);

/// Reads the environment. Called once, before anything is drawn.
pub(crate) fn start() {
    random::start();
    if random::given().is_some() {
        ON.store(true, Ordering::Relaxed);
        probe::listen(at_probe_point);
    }
}

/// One time in `times`, where the mode is on.
#[inline]
fn sometimes(m: &'static M, times: u32) -> bool {
    ON.load(Ordering::Relaxed) && m.p().is_some_and(|p| p.random.next().is_multiple_of(times))
}

/// Whether a G that should run next goes to the tail instead.
#[inline]
pub(crate) fn to_the_tail(m: &'static M) -> bool {
    sometimes(m, 2)
}

/// Whether a P looks elsewhere first.
#[inline]
pub(crate) fn elsewhere_first(m: &'static M) -> bool {
    sometimes(m, 4)
}

fn at_probe_point() {
    // SAFETY: carried — probe points are told on Ms, with preemption off.
    let m = unsafe { M::current() };
    if sometimes(m, 8) {
        preempt::note(m, Why::Chance, 0);
    }
}
