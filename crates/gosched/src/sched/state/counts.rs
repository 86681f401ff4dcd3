//! How many goroutines there are, and how long Ms have run.

use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::sched::state::global::SCHED;
use crate::sys::thread_status;
use std::sync::atomic::{AtomicU64, Ordering};

/// Goroutines that live.
pub(crate) fn num_goroutines() -> usize {
    // Those that ended first: whoever ends meanwhile must have been started too.
    let ended: u64 = SCHED.all_ps().map(P::ended).sum();
    num_started().saturating_sub(ended) as usize
}

/// Goroutines that were ever started.
pub(crate) fn num_started() -> u64 {
    let here: u64 = SCHED.all_ps().map(P::started).sum();
    here + SCHED.foreign_goroutines.load(Ordering::Relaxed)
}

/// How long Ms have run whose threads have ended, in nanoseconds.
static ENDED_M_CPU_NANOS: AtomicU64 = AtomicU64::new(0);

/// The thread of an M ends: its own.
pub(crate) fn record_ended_m(m: &'static M) {
    let ran = thread_status::thread_cpu_nanos(m.tid()).unwrap_or(0);
    m.set_tid(0);
    // PAIR buried: whoever has this in its sum finds no thread.
    ENDED_M_CPU_NANOS.fetch_add(ran, Ordering::Release);
}

/// How long Ms have run, in nanoseconds. One that ends at this moment may be missing, but is not counted twice.
pub(crate) fn cpu_time() -> u64 {
    // PAIR buried: before the look at threads.
    let buried = ENDED_M_CPU_NANOS.load(Ordering::Acquire);
    buried + SCHED.all_ms().filter_map(|m| thread_status::thread_cpu_nanos(m.tid())).sum::<u64>()
}

/// How many wake-ups were lost, and made good by sysmon.
pub(crate) static LOST: AtomicU64 = AtomicU64::new(0);

/// See [`LOST`].
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}
