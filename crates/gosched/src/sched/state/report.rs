//! Hooks through which the scheduler has goroutines printed by `observe`, the layer above, mostly
//! when the process must end. This module never writes a report itself: the functions that
//! `observe` registers do.

use gosched_fiber::exit_guard;
use gosched_fiber::hook::Hook;

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
static REPORT: Hook<fn(ExitReason)> = Hook::new();

/// Sets the function that prints goroutines when the process must end.
pub(crate) fn set_report(report: &'static fn(ExitReason)) {
    REPORT.set(report);
}

/// Set before `main` by the layer above.
static SHOW: Hook<fn(&[u64])> = Hook::new();

/// Sets the function that prints the goroutines with the given ids on standard error, in a process
/// that continues.
pub(crate) fn set_show(show: &'static fn(&[u64])) {
    SHOW.set(show);
}

/// Prints the goroutines with these ids. The process continues. Allocates, and reads debug
/// information.
#[cfg_attr(not(ported), expect(dead_code, reason = "only the M:N scheduler has something to show"))]
pub(crate) fn show(ids: &[u64]) {
    if let Some(show) = SHOW.get() {
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
    if let Some(report) = REPORT.get() {
        report(end);
    }
}
