//! The runtime's own rules, for tests to break: not for programs to call.

use crate::sched;

/// Runs `f` as the runtime's own code runs: it must not allocate, wait, or panic.
pub fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    sched::with_preemption_off(f)
}

/// Runs `f` while nothing else does: it must not allocate, wait, or panic.
pub fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
    sched::with_world_stopped(f)
}

/// How often a P was taken from a thread that was blocked: in marked calls, and in others.
pub fn hand_offs() -> (u64, u64) {
    sched::hand_offs()
}
