//! The clock of the timers: nanoseconds of the monotonic clock, or virtual time. The wall clock is
//! never read, because it can be set back.

use super::cache_padded::CachePadded;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A time that is later than every other time.
pub(crate) const NEVER: u64 = u64::MAX;

/// The instant from which the nanoseconds are counted.
static START: OnceLock<Instant> = OnceLock::new();

/// The current virtual time; 0 if time is real.
static VIRTUAL: AtomicU64 = AtomicU64::new(0);

/// Makes time virtual. From this call on, time passes only by [`advance_to`].
pub(crate) fn make_virtual() {
    VIRTUAL.store(now(), Ordering::Relaxed);
}

#[inline]
pub(crate) fn is_virtual() -> bool {
    VIRTUAL.load(Ordering::Relaxed) != 0
}

/// Advances the virtual clock to `time`. Time must be virtual. Single writer.
pub(crate) fn advance_to(time: u64) {
    VIRTUAL.fetch_max(time, Ordering::Relaxed);
}

/// Returns the current time in nanoseconds since an arbitrary moment; never 0.
#[inline]
pub(crate) fn now() -> u64 {
    let time = VIRTUAL.load(Ordering::Relaxed);
    if time != 0 {
        return time;
    }
    real_now()
}

/// Like [`now`], but returns the real time even if time is virtual.
/// Go: nanotime.
#[inline]
pub(crate) fn real_now() -> u64 {
    let start = START.get_or_init(Instant::now);
    nanos(start.elapsed()) + 1
}

/// A recent value of [`real_now`]. Written by sysmon, and by an M that wakes sysmon.
static COARSE_NOW: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(1));

/// Returns a value of [`real_now`] that is a few milliseconds old. The value may be older while no
/// goroutine runs, because sysmon sleeps then.
#[inline]
pub(crate) fn coarse_now() -> u64 {
    COARSE_NOW.load(Ordering::Relaxed)
}

/// Sets the value of [`coarse_now`]. Writes at most once per millisecond, because all Ms read that
/// cache line.
pub(crate) fn update_coarse_now(now: u64) {
    const UPDATE_INTERVAL_NANOS: u64 = 1_000_000;
    if now.saturating_sub(coarse_now()) >= UPDATE_INTERVAL_NANOS {
        COARSE_NOW.store(now, Ordering::Relaxed);
    }
}

/// Returns the CPU time that all threads of the process have used, in nanoseconds.
pub(crate) fn process_cpu_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Converts a time to an [`Instant`].
pub(crate) fn instant(time: u64) -> Instant {
    let start = *START.get_or_init(Instant::now);
    start.checked_add(Duration::from_nanos(time.saturating_sub(1))).unwrap_or(start)
}

/// Returns the time `duration` from now. The result is always earlier than [`NEVER`].
pub(crate) fn after(duration: Duration) -> u64 {
    now().saturating_add(nanos(duration)).min(NEVER - 1)
}

/// Converts a duration to nanoseconds. A duration that does not fit becomes `u64::MAX / 2`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_advances_and_does_not_overflow() {
        let before = now();
        assert!(before > 0 && after(Duration::ZERO) >= before);
        assert!(after(Duration::from_secs(1)) >= before + 1_000_000_000);
        assert!(after(Duration::MAX) > u64::MAX / 2);
        assert!(instant(now()) <= Instant::now() && instant(before) < instant(now() + 1));
    }
}
