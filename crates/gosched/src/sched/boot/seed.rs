//! The seeded mode: the scheduler draws its choices from a seed, so that tests see more
//! interleavings.
//!
//! `GOSCHED_SEED=number` turns the mode on for the process. A new or readied G goes to `run_next`
//! or to the tail of the queue, a P sometimes steals before it takes from its own queue, and after
//! a submission the running goroutine is sometimes requested to yield when it next leaves the
//! runtime. Panics and fatal errors print the seed.
//!
//! This module never draws a choice: `state::seeded` does.

use crate::probe::{self, Watcher};
use crate::sched::state::seeded;
use crate::sys::random;
use std::sync::atomic::Ordering;

/// Reads the environment. Called once, before the first random choice.
pub(crate) fn start() {
    random::start();
    if random::explicit_seed().is_some() {
        seeded::ON.store(true, Ordering::Relaxed);
        probe::set_watched_by(Watcher::Seed, true);
    }
}
