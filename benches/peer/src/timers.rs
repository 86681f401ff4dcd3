//! Workloads on timers.

use crate::common::{self, Measured, timed};
use crate::wait_group::WaitGroup;
use gosched::{go, time};
use std::time::{Duration, Instant};

/// Runs `n` sleeping tasks twice: the first run creates their stacks, the second reuses them.
pub(crate) fn sleepers(n: u64) -> Measured {
    let before = common::resident();
    let (spawned, wall) = sleep_all(n);
    let memory = common::peak().saturating_sub(before);
    let (_, again) = sleep_all(n);
    Measured::new(n, (n, wall))
        .and("over_1s_ms", wall.as_secs_f64() * 1e3 - 1e3)
        .and("warm_over_1s_ms", again.as_secs_f64() * 1e3 - 1e3)
        .and("spawn_ms", spawned.as_secs_f64() * 1e3)
        .and("rss_per_task", memory as f64 / n as f64)
}

/// Starts `n` tasks that sleep for a random time of up to a second. Returns how long it took to
/// start them, and how long until all were awake.
fn sleep_all(n: u64) -> (Duration, Duration) {
    let mut random = 42;
    let start = Instant::now();
    timed(|| {
        let all = WaitGroup::new(n);
        for _ in 0..n {
            let all = all.clone();
            random = common::work(random, 1);
            let duration = Duration::from_nanos(random % 1_000_000_000);
            go(move || {
                time::sleep(duration);
                all.done();
            });
        }
        let spawned = start.elapsed();
        all.wait();
        spawned
    })
}

/// Number of timers that exist during the whole workload.
const LIVE: usize = 10_000;

pub(crate) fn churn(n: u64) -> Measured {
    let mut random = 7;
    let mut after = || {
        random = common::work(random, 1);
        time::after_func(Duration::from_millis(10_000 + random % 50_000), || {})
    };
    let live: Vec<_> = (0..LIVE).map(|_| after()).collect();
    let stopped = timed(|| (0..n).filter(|_| after().stop()).count() as u64);
    assert!(live.iter().all(time::Timer::stop));
    Measured::new(n, stopped).with("timer", "after_func and stop; 10k live")
}
