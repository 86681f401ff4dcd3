//! The seeded mode: choices of the scheduler are drawn from a seed, so that tests see more orders.
//!
//! `GOSCHED_SEED=number` turns it on for the process. New and readied Gs go to `run_next` or to the
//! tail, a P sometimes steals before it looks at its own queue, and at probe points a goroutine is
//! asked to yield at its next way out of the runtime. The seed is named in panics and fatal errors.

use super::preempt::{self, Why};
use crate::gmp::m::M;
use crate::probe;
use crate::sys::random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static ON: AtomicBool = AtomicBool::new(false);

static SEED: AtomicU64 = AtomicU64::new(0);

/// The variable that turns it on.
pub(crate) const VARIABLE: &str = "GOSCHED_SEED";

/// Reads the environment. Called once, before anything is drawn.
pub(crate) fn start() {
    let given = std::env::var(VARIABLE).ok().and_then(|seed| seed.trim().parse::<u64>().ok());
    match given {
        Some(seed) => {
            random::seed_with(seed);
            SEED.store(seed, Ordering::Relaxed);
            ON.store(true, Ordering::Relaxed);
            probe::listen(at_probe_point);
        }
        None => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            random::seed_with(now.map_or(1, |now| now.as_nanos() as u64));
        }
    }
}

/// The seed, where the mode is on.
pub(crate) fn seed() -> Option<u64> {
    ON.load(Ordering::Relaxed).then(|| SEED.load(Ordering::Relaxed))
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
