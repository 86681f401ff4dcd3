//! Tasks that never release their Ps by themselves, and a ticker beside them.

use crate::common::{Measured, threads, timed};
use crate::ticks::Ticks;
use crate::wait_group::WaitGroup;
use gosched::{go, runtime};
use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the ticker runs.
const WINDOW: Duration = Duration::from_secs(3);
/// Name of sysmon's thread.
const WATCHER: &str = "gosched-sysmon";

/// Tasks that compute without a call until they are stopped.
pub(crate) struct Hogs {
    stop: Arc<AtomicBool>,
    all: Arc<WaitGroup>,
}

impl Hogs {
    /// Starts `n` tasks.
    pub(crate) fn start(n: u64) -> Hogs {
        let hogs = Hogs { stop: Arc::new(AtomicBool::new(false)), all: WaitGroup::new(n) };
        for seed in 0..n {
            let (stop, all) = (hogs.stop.clone(), hogs.all.clone());
            go(move || {
                let mut state = seed | 1;
                while !stop.load(Ordering::Relaxed) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                }
                black_box(state);
                all.done();
            });
        }
        hogs
    }

    /// Stops the tasks, and waits until all have ended.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.all.wait();
    }
}

/// Runs `each` hogs per P beside a ticker.
pub(crate) fn hogs(each: u64) -> Measured {
    let ticks = Ticks::start(WINDOW, "preempt", each);
    let before = watcher_cpu();
    let hogs = Hogs::start(each * runtime::procs() as u64);
    let (ticks, wall) = timed(|| ticks.go_on());
    let watched = watcher_cpu().saturating_sub(before);
    let threads = threads();
    hogs.stop();
    ticks
        .report(Measured::new(1, (each, wall)))
        .and("sysmon_cpu_pct", 100.0 * watched.as_secs_f64() / wall.as_secs_f64())
        .and("threads", threads as f64)
}

/// Returns the CPU time that sysmon has used so far.
fn watcher_cpu() -> Duration {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let mut tasks = tasks.flatten().map(|task| task.path());
    let is_watcher = |comm: String| comm.trim_end() == WATCHER;
    let watcher = tasks.find(|task| fs::read_to_string(task.join("comm")).is_ok_and(is_watcher));
    // The first number in `schedstat` is the CPU time in nanoseconds.
    let spent = watcher.and_then(|task| fs::read_to_string(task.join("schedstat")).ok());
    let spent = spent.as_deref().and_then(|text| text.split_whitespace().next()?.parse().ok());
    Duration::from_nanos(spent.unwrap_or(0))
}
