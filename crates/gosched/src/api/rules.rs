//! The runtime's own rules, for allocators and tests to check: not for programs to call.

use crate::sched;

/// An allocator calls it when it is entered. With debug assertions, ends the process where nothing
/// may be allocated.
#[inline]
pub fn check_allocation() {
    if cfg!(debug_assertions) {
        sched::check_allocation();
    }
}

/// Runs `f` as the runtime's own code runs: it must not allocate, wait, or panic.
pub fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    sched::with_preemption_off(f)
}
