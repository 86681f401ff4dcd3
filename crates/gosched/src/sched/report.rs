//! What the layer above does for those below: it shows goroutines when the process must end.

use gosched_context::dying;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
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
pub(crate) fn set_report(report: fn(End)) {
    REPORT.store(report as *mut (), Ordering::Relaxed);
}

/// Makes sure that one reports, from the first words on: others wait for it.
pub(crate) fn begin() {
    if !dying::begin() {
        dying::wait_for_the_end();
    }
}

/// Shows goroutines: allocates, and reads debug information.
pub(crate) fn report(end: End) {
    let report = REPORT.load(Ordering::Relaxed);
    if !report.is_null() {
        // SAFETY: `set_report` stored a function of this type.
        let report = unsafe { std::mem::transmute::<*mut (), fn(End)>(report) };
        report(end);
    }
}
