//! How much CPU time there was for goroutines: as much as Ps, for as long as there were so many.

use crate::sys::{Lock, clock};
use gosched_context::lock::Guarded;

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

/// How much CPU time there was until now, in nanoseconds.
pub(crate) fn available() -> u64 {
    Guarded::new(&AREA).now(clock::real_now())
}
