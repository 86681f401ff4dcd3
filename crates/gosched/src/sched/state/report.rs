//! Hooks through which the scheduler has goroutines printed by `observe`, the layer above, mostly
//! when the process must end.

use gosched_fiber::exit_guard;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// The program can no longer run: a deadlock.
    Fatal,
    /// A limit was exceeded: Go's `throw`. The report shows everything.
    Limit,
    /// The calling goroutine panicked and has been unwound.
    Panic,
    /// The caller's stack overflowed; its frames are already printed.
    Overflow,
}

/// Set before `main` by the layer above.
static REPORT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function that prints goroutines when the process must end.
pub(crate) fn set_report(report: fn(ExitReason)) {
    REPORT.store(report as *mut (), Ordering::Relaxed);
}

/// Set before `main` by the layer above.
static SHOW: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function that prints the goroutines with the given ids on standard error, in a process
/// that continues.
pub(crate) fn set_show(show: fn(&[u64])) {
    SHOW.store(show as *mut (), Ordering::Relaxed);
}

/// Prints the goroutines with these ids. The process continues. Allocates, and reads debug
/// information.
#[cfg_attr(not(ported), expect(dead_code, reason = "only the M:N scheduler has something to show"))]
pub(crate) fn show(ids: &[u64]) {
    let show = SHOW.load(Ordering::Relaxed);
    if !show.is_null() {
        // SAFETY: `set_show` stores only functions of this type.
        let show = unsafe { std::mem::transmute::<*mut (), fn(&[u64])>(show) };
        show(ids);
    }
}

/// Claims the right to report and to end the process. Does not return if another thread has claimed
/// it, so that reports do not mix. Call before the first line of output.
pub(crate) fn begin() {
    if !exit_guard::claim() {
        exit_guard::wait_for_exit();
    }
}

/// Prints goroutines. Allocates, and reads debug information.
pub(crate) fn report(end: ExitReason) {
    let report = REPORT.load(Ordering::Relaxed);
    if !report.is_null() {
        // SAFETY: `set_report` stores only functions of this type.
        let report = unsafe { std::mem::transmute::<*mut (), fn(ExitReason)>(report) };
        report(end);
    }
}
