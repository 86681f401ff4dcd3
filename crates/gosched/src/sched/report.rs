//! What the layer above does for the scheduler: it shows all goroutines when the process must end.

use std::sync::atomic::{AtomicPtr, Ordering};

/// Shows all goroutines with their frames. Set before `main`, by the layer above.
static REPORT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// What shows all goroutines when the process must end.
pub(crate) fn set_report(report: fn()) {
    REPORT.store(report as *mut (), Ordering::Relaxed);
}

/// Shows all goroutines: allocates, and reads debug information.
pub(crate) fn report() {
    let report = REPORT.load(Ordering::Relaxed);
    if !report.is_null() {
        // SAFETY: `set_report` stored a function of this type.
        let report = unsafe { std::mem::transmute::<*mut (), fn()>(report) };
        report();
    }
}
