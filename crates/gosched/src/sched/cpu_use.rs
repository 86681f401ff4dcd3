//! How much CPU time there was for goroutines, and how much they used.
//!
//! There was as much as Ps, for as long as there were so many. Used is what the threads that run them have
//! run, the scheduler's share included: the kernel knows, so nobody has to measure.

use crate::sched::{Backend, backend, moving};
use crate::sys::{Lock, clock};
use gosched_context::lock::Guarded;
use std::sync::atomic::{AtomicU64, Ordering};

/// CPU time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuUse {
    pub(crate) user: u64,
    pub(crate) idle: u64,
}

/// Ps, integrated over time.
struct Area {
    procs: u64,
    since: u64,
    until_then: u64,
}

impl Area {
    fn now(&self, now: u64) -> u64 {
        self.until_then + self.procs * now.saturating_sub(self.since)
    }
}

static AREA: Lock<Area> = Lock::new(Area { procs: 0, since: 0, until_then: 0 });

/// There are so many Ps from here on.
pub(crate) fn procs_changed(procs: usize) {
    let now = clock::real_now();
    let mut area = Guarded::new(&AREA);
    let until_then = area.now(now);
    *area = Area { procs: procs as u64, since: now, until_then };
}

/// The most that was ever told: what is read here and there may be less than it was before.
static USER: AtomicU64 = AtomicU64::new(0);
static IDLE: AtomicU64 = AtomicU64::new(0);

/// Neither number ever gets smaller.
pub(crate) fn cpu_use() -> CpuUse {
    let user = match backend() {
        Backend::MultiThread => moving::cpu_time(),
        Backend::Threads => clock::process_cpu_time(),
    };
    let area = Guarded::new(&AREA).now(clock::real_now());
    let at_least = |most: &AtomicU64, now: u64| most.fetch_max(now, Ordering::Relaxed).max(now);
    let user = at_least(&USER, user);
    CpuUse { user, idle: at_least(&IDLE, area.saturating_sub(user)) }
}
