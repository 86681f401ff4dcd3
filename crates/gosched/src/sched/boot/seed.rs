//! The seeded mode: the scheduler draws its choices from a seed, so that tests see more
//! interleavings.
//!
//! `GOSCHED_SEED=number` turns the mode on for the process. A new or readied G goes to `run_next`
//! or to the tail of the queue, a P sometimes steals before it takes from its own queue, and at
//! probe points the running goroutine is sometimes requested to yield when it next leaves the
//! runtime. Panics and fatal errors print the seed.
//!
//! The listener at probe points never switches to another goroutine: it only sets a request.

use crate::gmp::m::M;
use crate::gmp::preempt_request::PreemptReason;
use crate::probe::{self, Listener};
use crate::sched::state::seeded;
use crate::sched::switch::preempt;
use crate::sys::random;
use std::sync::atomic::Ordering;

/// Reads the environment. Called once, before the first random choice.
pub(crate) fn start() {
    random::start();
    if random::explicit_seed().is_some() {
        seeded::ON.store(true, Ordering::Relaxed);
        probe::set_listener(&(at_probe_point as Listener));
    }
}

fn at_probe_point() {
    // SAFETY: carried — probe points are reached only on Ms, with preemption off.
    let m = unsafe { M::current() };
    if seeded::draw_one_in(m, 8) {
        preempt::set_request(m, PreemptReason::Seeded, 0);
    }
}
