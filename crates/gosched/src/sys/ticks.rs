//! A clock that is read in a few nanoseconds: the CPU's time stamp counter if the kernel uses it as
//! its own clock, otherwise the monotonic clock.
//!
//! The kernel uses the counter only if it runs at one rate on all CPUs, and shows the same value on
//! all of them. A tick is read after all earlier loads: if one thread reads what another thread has
//! written, its tick is not earlier.
//!
//! This module never adjusts the counter: a [`Scale`] converts ticks to nanoseconds.

use super::{clock, counter};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether ticks come from the time stamp counter. Set before the first tick is read.
static IS_COUNTER: AtomicBool = AtomicBool::new(false);

/// The time between the two readings that a [`Scale`] is made from, at least.
const MIN_BASE: Duration = Duration::from_millis(10);

/// The file that names the kernel's own clock.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Returns the current tick. Call [`Scale::measure`] before.
#[inline]
pub(crate) fn now() -> u64 {
    match counter::READ {
        Some(read) if IS_COUNTER.load(Ordering::Relaxed) => read(),
        _ => clock::real_now(),
    }
}

/// Two clocks, read at the same moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    nanos: u64,
}

impl Reading {
    /// Reads both clocks. Of a few readings, the one that took the least time is the most exact.
    fn take() -> Reading {
        let read = |_| {
            let before = now();
            let nanos = clock::real_now();
            let after = now();
            (after - before, Reading { ticks: before + (after - before) / 2, nanos })
        };
        (0..8)
            .map(read)
            .min_by_key(|(took, _)| *took)
            .map(|(_, reading)| reading)
            .unwrap_or(Reading { ticks: 0, nanos: 0 })
    }
}

static FIRST: OnceLock<Reading> = OnceLock::new();

/// Chooses the clock, and takes the first of the two readings that a [`Scale`] is made from.
pub(crate) fn start() {
    FIRST.get_or_init(|| {
        let source = std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
        let is_counter = counter::READ.is_some() && source.trim() == "tsc";
        IS_COUNTER.store(is_counter, Ordering::Relaxed);
        Reading::take()
    });
}

/// Converts ticks to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    nanos_per_tick: f64,
}

impl Scale {
    /// Measures how long a tick is. Takes up to 10 ms the first time.
    pub(crate) fn measure() -> Scale {
        start();
        let first = FIRST.get().copied().unwrap_or_else(Reading::take);
        let passed = Duration::from_nanos(clock::real_now().saturating_sub(first.nanos));
        if let Some(rest) = MIN_BASE.checked_sub(passed) {
            std::thread::sleep(rest);
        }
        let second = Reading::take();
        let ticks = second.ticks.saturating_sub(first.ticks).max(1);
        Scale { nanos_per_tick: (second.nanos - first.nanos) as f64 / ticks as f64 }
    }

    /// Returns how many nanoseconds `ticks` ticks are.
    pub(crate) fn nanos(self, ticks: u64) -> u64 {
        (ticks as f64 * self.nanos_per_tick) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn ticks_are_as_long_as_the_scale_says() {
        let scale = Scale::measure();
        let (began, first) = (Instant::now(), now());
        std::thread::sleep(Duration::from_millis(20));
        let (second, passed) = (now(), began.elapsed());
        let measured = Duration::from_nanos(scale.nanos(second - first));
        // The two readings at each end are not taken at the same moment.
        assert!(measured >= Duration::from_micros(19_900), "{measured:?}");
        assert!(measured <= passed + passed / 100, "{measured:?}, {passed:?}");
    }

    #[test]
    fn a_tick_that_is_read_after_another_is_not_earlier() {
        start();
        let ticks: Vec<u64> = (0..1000).map(|_| now()).collect();
        assert!(ticks.is_sorted());
    }
}
