//! Times that were measured since the process started: waits of goroutines, and stops of the world.
//! This module never reads a clock: callers pass the durations.

use super::histogram::{Durations, TimeHistogram};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of histograms that share the recording, so that goroutines that are measured at the same
/// moment rarely write to the same one.
const SHARDS: usize = 8;

/// Go: sched.timeToRun.
static TIME_TO_RUN: [TimeHistogram; SHARDS] = [const { TimeHistogram::new() }; SHARDS];
/// Go: sched.totalMutexWaitTime.
static MUTEX_WAIT_NANOS: AtomicU64 = AtomicU64::new(0);
static STW_STOPPING: TimeHistogram = TimeHistogram::new();
static STW_TOTAL: TimeHistogram = TimeHistogram::new();

/// Records that the goroutine whose G is at `address` was runnable for `nanos` before it ran.
pub(crate) fn record_time_to_run(address: usize, nanos: u64) {
    // Gs are 256 bytes apart.
    TIME_TO_RUN[(address >> 8) % SHARDS].record(nanos);
}

/// Adds `nanos` to the time that goroutines have waited for locks.
pub(crate) fn record_mutex_wait(nanos: u64) {
    MUTEX_WAIT_NANOS.fetch_add(nanos, Ordering::Relaxed);
}

/// Records that the world had stopped after `stopping` nanoseconds and continued after `total`
/// nanoseconds.
pub(crate) fn record_world_stop(stopping: u64, total: u64) {
    STW_STOPPING.record(stopping);
    STW_TOTAL.record(total);
}

/// The times that were measured so far.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) time_to_run: Durations,
    pub(crate) mutex_wait_nanos: u64,
    pub(crate) stopping: Durations,
    pub(crate) stopped: Durations,
}

/// Returns the times that were measured so far. Allocates.
pub(crate) fn times() -> Times {
    let read = |histograms: &[TimeHistogram]| {
        let mut sum = Durations::new();
        histograms.iter().for_each(|histogram| histogram.add_to(&mut sum));
        sum
    };
    Times {
        time_to_run: read(&TIME_TO_RUN),
        mutex_wait_nanos: MUTEX_WAIT_NANOS.load(Ordering::Relaxed),
        stopping: read(std::slice::from_ref(&STW_STOPPING)),
        stopped: read(std::slice::from_ref(&STW_TOTAL)),
    }
}
