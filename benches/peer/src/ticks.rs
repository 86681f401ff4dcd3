//! A ticker that must go on beside something else: every millisecond, and how late each time.

use crate::common::{self, Measured};
use gosched::time;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(1);
/// No tick for so long: there will be none.
const STARVED: Duration = Duration::from_secs(2);
/// How often the watchdog looks.
const LOOK: Duration = Duration::from_millis(50);
/// What stands for the time of the last tick when there will be no more.
const OVER: u64 = u64::MAX;

/// Ticks at `start` + 1 ms, + 2 ms, …, and those that came.
pub(crate) struct Ticks {
    start: Instant,
    window: Duration,
    late: Vec<Duration>,
    /// When the last one came, in nanoseconds since `start`.
    last: Arc<AtomicU64>,
}

impl Ticks {
    /// For `window` from now, in workload `name` with `n`: for the line of one that starves.
    pub(crate) fn start(window: Duration, name: &'static str, n: u64) -> Ticks {
        let (start, last) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let seen = last.clone();
        // An ordinary thread: no goroutine can starve it.
        thread::spawn(move || watch(start, &seen, name, n));
        Ticks { start, window, late: Vec::with_capacity(10_000), last }
    }

    /// Ticks until the window is over. A tick that is more than one period late skips those it has missed.
    pub(crate) fn go_on(mut self) -> Ticks {
        let mut next = 1;
        while self.start.elapsed() < self.window {
            let due = self.start + TICK * next;
            time::sleep(due.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            self.late.push(now.saturating_duration_since(due));
            let passed = (now - self.start).as_nanos();
            self.last.store(passed as u64, Ordering::Relaxed);
            next = (next + 1).max((passed / TICK.as_nanos()) as u32 + 1);
        }
        self.last.store(OVER, Ordering::Relaxed);
        self
    }

    /// Adds what the suite wants to know.
    pub(crate) fn report(self, measured: Measured) -> Measured {
        let came = self.late.len() as f64;
        let wanted = (self.window.as_nanos() / TICK.as_nanos()) as f64;
        measured
            .is("starved", false)
            .and("ticks", came)
            .and("missed_pct", (100.0 * (1.0 - came / wanted)).max(0.0))
            .delays(["late_p50_us", "late_p99_us", "late_max_us"], self.late)
    }
}

/// Ends the process when there was no tick for too long, and says so in its line.
fn watch(start: Instant, last: &AtomicU64, name: &str, n: u64) {
    loop {
        thread::sleep(LOOK);
        let last = last.load(Ordering::Relaxed);
        if last == OVER {
            return;
        }
        let now = start.elapsed();
        if now.saturating_sub(Duration::from_nanos(last)) > STARVED {
            let measured = Measured::new(1, (n, now)).is("starved", true);
            common::print(name, n, measured, Duration::ZERO);
            exit(0);
        }
    }
}
