//! How much CPU time there was for goroutines: as much as Ps, for as long as there were so many.

use crate::sys::{Lock, clock};
use gosched_fiber::lock::NoPreemptLockGuard;

/// Ps, integrated over time.
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

/// There are so many Ps from here on.
pub(crate) fn record_procs(procs: usize) {
    let now = clock::real_now();
    let mut area = NoPreemptLockGuard::new(&PROC_TIME);
    let until_then = area.total_at(now);
    *area = ProcTime { procs: procs as u64, since: now, accumulated_nanos: until_then };
}

/// How much CPU time there was until now, in nanoseconds.
pub(crate) fn available() -> u64 {
    NoPreemptLockGuard::new(&PROC_TIME).total_at(clock::real_now())
}
