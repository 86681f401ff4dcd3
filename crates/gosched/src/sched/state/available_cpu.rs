//! The CPU time available to goroutines: the number of Ps, integrated over time. This module never
//! reads the CPU time that was used: `inspect::cpu_use` does.

use crate::sys::{Lock, clock};
use gosched_fiber::lock::NoPreemptLockGuard;

/// The number of Ps integrated over time, up to `since`, and the number of Ps from then on.
struct ProcTime {
    procs: u64,
    since: u64,
    accumulated_nanos: u64,
}

impl ProcTime {
    fn total_at(&self, now: u64) -> u64 {
        self.accumulated_nanos + self.procs * now.saturating_sub(self.since)
    }
}

static PROC_TIME: Lock<ProcTime> = Lock::new(ProcTime { procs: 0, since: 0, accumulated_nanos: 0 });

/// Records that the number of Ps is `procs` from here on.
pub(crate) fn record_procs(procs: usize) {
    let now = clock::real_now();
    let mut area = NoPreemptLockGuard::new(&PROC_TIME);
    let until_then = area.total_at(now);
    *area = ProcTime { procs: procs as u64, since: now, accumulated_nanos: until_then };
}

/// Returns the CPU time that has been available so far, in nanoseconds.
pub(crate) fn available() -> u64 {
    NoPreemptLockGuard::new(&PROC_TIME).total_at(clock::real_now())
}
