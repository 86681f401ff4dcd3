//! What was measured since the process began: waits of goroutines, and pauses of the world.

use super::histogram::{Durations, TimeHistogram};
use std::sync::atomic::{AtomicU64, Ordering};

/// Goroutines that are measured at the same moment seldom write to the same one.
const PARTS: usize = 8;

static FOR_A_P: [TimeHistogram; PARTS] = [const { TimeHistogram::new() }; PARTS];
static FOR_LOCKS: AtomicU64 = AtomicU64::new(0);
static STOPPING: TimeHistogram = TimeHistogram::new();
static STOPPED: TimeHistogram = TimeHistogram::new();

/// The goroutine whose record is at `address` was runnable for so many nanoseconds before it ran.
pub(crate) fn waited_for_a_p(address: usize, nanos: u64) {
    // Records are 256 bytes apart.
    FOR_A_P[(address >> 8) % PARTS].record(nanos);
}

/// Goroutines have waited for locks for so many nanoseconds.
pub(crate) fn waited_for_a_lock(nanos: u64) {
    FOR_LOCKS.fetch_add(nanos, Ordering::Relaxed);
}

/// The world had stopped after so many nanoseconds, and went on after so many.
pub(crate) fn world_stopped(stopping: u64, total: u64) {
    STOPPING.record(stopping);
    STOPPED.record(total);
}

/// What is known of the above.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) for_a_p: Durations,
    pub(crate) for_locks_nanos: u64,
    pub(crate) stopping: Durations,
    pub(crate) stopped: Durations,
}

/// Reads it: allocates.
pub(crate) fn times() -> Times {
    let read = |histograms: &[TimeHistogram]| {
        let mut sum = Durations::new();
        histograms.iter().for_each(|histogram| histogram.add_to(&mut sum));
        sum
    };
    Times {
        for_a_p: read(&FOR_A_P),
        for_locks_nanos: FOR_LOCKS.load(Ordering::Relaxed),
        stopping: read(std::slice::from_ref(&STOPPING)),
        stopped: read(std::slice::from_ref(&STOPPED)),
    }
}
