//! A ticker that must keep running beside a workload: it ticks every millisecond, and records how
//! late each tick is.

use crate::common::{self, Measured};
use gosched::time;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(1);
/// How long a ticker may be without a tick before it counts as starved.
const STARVED: Duration = Duration::from_secs(2);
/// How often the watchdog checks the ticker.
const LOOK: Duration = Duration::from_millis(50);
/// Value of [`Ticks::last`] when the ticker has ended.
const OVER: u64 = u64::MAX;

/// A ticker whose ticks are due at `start` + 1 ms, + 2 ms, …, and how late each tick was.
pub(crate) struct Ticks {
    start: Instant,
    window: Duration,
    late: Vec<Duration>,
    /// When the last tick came, in nanoseconds since `start`. Written by the ticker, read by the
    /// watchdog.
    last: Arc<AtomicU64>,
}

impl Ticks {
    /// Starts the watchdog of a ticker that runs for `window`. The watchdog prints the line of the
    /// workload, with `name` and `n`, if the ticker starves.
    pub(crate) fn start(window: Duration, name: &'static str, n: u64) -> Ticks {
        let (start, last) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let seen = last.clone();
        // An ordinary thread, which goroutines cannot starve.
        thread::spawn(move || watch(start, &seen, name, n));
        Ticks { start, window, late: Vec::with_capacity(10_000), last }
    }

    /// Ticks until the window is over. A tick that is more than one period late skips the ticks
    /// that it has missed.
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

    /// Adds the results of the ticker.
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

/// Ends the process if there was no tick for too long, and prints the line of a starved workload.
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
