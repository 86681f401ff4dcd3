//! The seeded mode: choices of the scheduler are drawn from a seed, so that tests see more orders.
//!
//! `GOSCHED_SEED=number` turns it on for the process. New and readied Gs go to `run_next` or to the
//! tail, a P sometimes steals before it looks at its own queue, and at probe points a goroutine is
//! asked to yield at its next way out of the runtime. The seed is named in panics and fatal errors.

use crate::gmp::m::M;
use crate::probe;
use crate::sched::state::seeded;
use crate::sched::switch::preempt::{self, PreemptReason};
use crate::sys::random;
use std::sync::atomic::Ordering;

/// Reads the environment. Called once, before anything is drawn.
pub(crate) fn start() {
    random::start();
    if random::explicit_seed().is_some() {
        seeded::ON.store(true, Ordering::Relaxed);
        probe::set_listener(at_probe_point);
    }
}

fn at_probe_point() {
    // SAFETY: carried — probe points are told on Ms, with preemption off.
    let m = unsafe { M::current() };
    if seeded::draw_one_in(m, 8) {
        preempt::set_request(m, PreemptReason::Seeded, 0);
    }
}
