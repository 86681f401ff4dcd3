//! What the layer above does for those below: it shows goroutines, mostly when the process must end.

use gosched_fiber::exit_guard;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// Nothing can go on: the program's fault.
    Fatal,
    /// A limit was reached: Go's `throw`, which shows everything.
    Limit,
    /// The caller panicked, and has been unwound.
    Panic,
    /// The caller's stack has overflowed, and the caller has been shown.
    Overflow,
}

/// Set before `main`, by the layer above.
static REPORT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// What shows goroutines when the process must end.
pub(crate) fn set_report(report: fn(ExitReason)) {
    REPORT.store(report as *mut (), Ordering::Relaxed);
}

/// Set before `main`, by the layer above.
static SHOW: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// What shows some goroutines on standard error, by their ids, in a process that goes on.
pub(crate) fn set_show(show: fn(&[u64])) {
    SHOW.store(show as *mut (), Ordering::Relaxed);
}

/// Shows these goroutines, in a process that goes on: allocates, and reads debug information.
#[cfg_attr(not(ported), expect(dead_code, reason = "only the M:N scheduler has something to show"))]
pub(crate) fn show(ids: &[u64]) {
    let show = SHOW.load(Ordering::Relaxed);
    if !show.is_null() {
        // SAFETY: `set_show` stored a function of this type.
        let show = unsafe { std::mem::transmute::<*mut (), fn(&[u64])>(show) };
        show(ids);
    }
}

/// Makes sure that one reports, from the first words on: others wait for it.
pub(crate) fn begin() {
    if !exit_guard::claim() {
        exit_guard::wait_for_exit();
    }
}

/// Shows goroutines: allocates, and reads debug information.
pub(crate) fn report(end: ExitReason) {
    let report = REPORT.load(Ordering::Relaxed);
    if !report.is_null() {
        // SAFETY: `set_report` stored a function of this type.
        let report = unsafe { std::mem::transmute::<*mut (), fn(ExitReason)>(report) };
        report(end);
    }
}
