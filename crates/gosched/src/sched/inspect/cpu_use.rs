//! How much CPU time there was for goroutines, and how much they used.
//!
//! There was as much as Ps, for as long as there were so many. Used is what the threads that run them have
//! run, the scheduler's share included: the kernel knows, so nobody has to measure.

use crate::sched::inspect::contract::of_backend;
use crate::sched::inspect::types::CpuUse;
use crate::sched::state::available_cpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most that was ever told: what is read here and there may be less than it was before.
static USER: AtomicU64 = AtomicU64::new(0);
static IDLE: AtomicU64 = AtomicU64::new(0);

/// Neither number ever gets smaller.
pub(crate) fn cpu_use() -> CpuUse {
    let user = of_backend!(cpu_time());
    let available = available_cpu::available();
    let at_least = |most: &AtomicU64, now: u64| most.fetch_max(now, Ordering::Relaxed).max(now);
    let user = at_least(&USER, user);
    CpuUse { user, idle: at_least(&IDLE, available.saturating_sub(user)) }
}
