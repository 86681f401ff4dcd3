//! The time that timers go by: nanoseconds of the monotonic clock.

use super::cache_padded::CachePadded;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Later than any time.
pub(crate) const NEVER: u64 = u64::MAX;

/// Where counting began.
static START: OnceLock<Instant> = OnceLock::new();

/// The time, where it is virtual; else 0.
static VIRTUAL: AtomicU64 = AtomicU64::new(0);

/// From here on time goes by only where [`advance_to`] says so.
pub(crate) fn make_virtual() {
    VIRTUAL.store(now(), Ordering::Relaxed);
}

#[inline]
pub(crate) fn is_virtual() -> bool {
    VIRTUAL.load(Ordering::Relaxed) != 0
}

/// It is later now. Where time is virtual; by one at a time.
pub(crate) fn advance_to(time: u64) {
    VIRTUAL.fetch_max(time, Ordering::Relaxed);
}

/// Nanoseconds since some moment; never 0.
#[inline]
pub(crate) fn now() -> u64 {
    let time = VIRTUAL.load(Ordering::Relaxed);
    if time != 0 {
        return time;
    }
    real_now()
}

/// As [`now`], also where time is virtual.
/// Go: nanotime.
#[inline]
pub(crate) fn real_now() -> u64 {
    let start = START.get_or_init(Instant::now);
    nanos(start.elapsed()) + 1
}

/// What [`real_now`] said last to whoever looks at it often: sysmon.
static COARSE_NOW: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(1));

/// As [`real_now`], some milliseconds ago. While goroutines run, that is: else it stands still.
#[inline]
pub(crate) fn coarse_now() -> u64 {
    COARSE_NOW.load(Ordering::Relaxed)
}

/// It is `now`. Everybody reads it: it is not written without need.
pub(crate) fn update_coarse_now(now: u64) {
    const UPDATE_INTERVAL_NANOS: u64 = 1_000_000;
    if now.saturating_sub(coarse_now()) >= UPDATE_INTERVAL_NANOS {
        COARSE_NOW.store(now, Ordering::Relaxed);
    }
}

/// How long the threads of the process have run, in nanoseconds.
pub(crate) fn process_cpu_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The instant of a time.
pub(crate) fn instant(time: u64) -> Instant {
    let start = *START.get_or_init(Instant::now);
    start.checked_add(Duration::from_nanos(time.saturating_sub(1))).unwrap_or(start)
}

/// The time in `duration` from now; what is too far away is never.
pub(crate) fn after(duration: Duration) -> u64 {
    now().saturating_add(nanos(duration)).min(NEVER - 1)
}

/// A duration in nanoseconds; what is too long is very long.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_does_not_overflow() {
        let before = now();
        assert!(before > 0 && after(Duration::ZERO) >= before);
        assert!(after(Duration::from_secs(1)) >= before + 1_000_000_000);
        assert!(after(Duration::MAX) > u64::MAX / 2);
        assert!(instant(now()) <= Instant::now() && instant(before) < instant(now() + 1));
    }
}
