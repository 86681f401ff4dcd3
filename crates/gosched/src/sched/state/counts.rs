//! The number of goroutines, the CPU time of Ms, and the number of lost wake-ups. This module never
//! counts the start or the end of a goroutine: `switch` does.

use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::sched::state::global::SCHED;
use crate::sys::thread_status;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the number of live goroutines.
pub(crate) fn num_goroutines() -> usize {
    // The ended goroutines are summed first: a goroutine that ends between the two sums is then
    // counted as started only, so the difference is never negative.
    let ended: u64 = SCHED.all_ps().map(P::ended).sum();
    num_started().saturating_sub(ended) as usize
}

/// Returns the number of goroutines ever started.
pub(crate) fn num_started() -> u64 {
    let here: u64 = SCHED.all_ps().map(P::started).sum();
    here + SCHED.foreign_goroutines.load(Ordering::Relaxed)
}

/// CPU time of Ms whose threads have ended, in nanoseconds.
static ENDED_M_CPU_NANOS: AtomicU64 = AtomicU64::new(0);

/// Adds the CPU time of `m` to the total of ended Ms. Called by the thread of `m`, at its end.
pub(crate) fn record_ended_m(m: &'static M) {
    let ran = thread_status::thread_cpu_nanos(m.tid()).unwrap_or(0);
    m.set_tid(0);
    // PAIR buried: a reader whose sum includes this M sees that the M has no thread.
    ENDED_M_CPU_NANOS.fetch_add(ran, Ordering::Release);
}

/// Returns the CPU time of all Ms, in nanoseconds. An M that ends during the call may be missing,
/// but is never counted twice.
pub(crate) fn cpu_time() -> u64 {
    // PAIR buried: loaded before the threads are read.
    let buried = ENDED_M_CPU_NANOS.load(Ordering::Acquire);
    buried + SCHED.all_ms().filter_map(|m| thread_status::thread_cpu_nanos(m.tid())).sum::<u64>()
}

/// Number of wake-ups that were lost and that sysmon repeated.
pub(crate) static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns [`LOST`].
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}
