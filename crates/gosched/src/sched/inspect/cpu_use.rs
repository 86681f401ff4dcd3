//! The CPU time available to goroutines, and the part of it that they used.
//!
//! Available is the number of Ps, integrated over time. Used is the CPU time of the threads that
//! run goroutines, as the kernel measures it; it includes the scheduler's own share. On the threads
//! backend it is the CPU time of the whole process. This module never attributes CPU time to single
//! goroutines.

use crate::sched::inspect::contract::of_backend;
use crate::sched::inspect::types::CpuUse;
use crate::sched::state::available_cpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest values returned so far: sums that are read while threads run may decrease.
static USER: AtomicU64 = AtomicU64::new(0);
static IDLE: AtomicU64 = AtomicU64::new(0);

/// Returns the used and the idle CPU time. Neither ever decreases.
pub(crate) fn cpu_use() -> CpuUse {
    let user = of_backend!(cpu_time());
    let available = available_cpu::available();
    let at_least = |most: &AtomicU64, now: u64| most.fetch_max(now, Ordering::Relaxed).max(now);
    let user = at_least(&USER, user);
    CpuUse { user, idle: at_least(&IDLE, available.saturating_sub(user)) }
}
