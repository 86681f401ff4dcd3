//! Keeps the process alive while the report of a fatal error is written: other ways to end the
//! process wait for the report.
//!
//! Other threads continue while a report is written, which takes from milliseconds to seconds.
//! Without this guard, a `main` that returns meanwhile would end the process with status 0 and half
//! a report.
//!
//! This module never decides that the process ends: the thread that has claimed the end calls
//! [`end_process`].

use std::sync::atomic::{AtomicI32, Ordering};

/// Id of the process that writes a report; 0 if none does. A child that is forked meanwhile has
/// another id, so its exits do not wait.
static CLAIMED_BY_PID: AtomicI32 = AtomicI32::new(0);

/// Claims the end of the process for the caller, which is about to write a report. Can be called in
/// signal handlers.
///
/// From here on `exit`, and a return from `main`, block (see [`install`]). So the caller must end
/// the process itself, by [`end_process`] or a signal, even if the report hangs: see `watchdog`.
///
/// Returns `false` if another thread has claimed the end before: its report should not be mixed
/// with a second one.
pub fn claim() -> bool {
    // SAFETY: getpid has no precondition.
    let own = unsafe { libc::getpid() };
    CLAIMED_BY_PID.swap(own, Ordering::Relaxed) != own
}

/// Returns whether a report has begun, in this process or in the process that forked it.
pub fn is_claimed() -> bool {
    CLAIMED_BY_PID.load(Ordering::Relaxed) != 0
}

/// Exit status of a process that ends with a report: Go's status for a fatal error.
const STATUS: i32 = 2;

/// Ends the process at once, after a report, with Go's status for a fatal error. Exit handlers and
/// destructors do not run: they cannot be trusted after a fatal error, and one of them may wait for
/// a goroutine. Can be called in signal handlers.
pub fn end_process() -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(STATUS) }
}

/// Aborts the process: the default action of SIGABRT can write a core dump. For code that has
/// printed why, or that must not print. Can be called in signal handlers.
pub fn abort() -> ! {
    std::process::abort()
}

/// Ends a forked child whose last thread has returned from its function, as libc does: exit
/// handlers run.
pub fn exit_forked_child() -> ! {
    // SAFETY: exit has no precondition.
    unsafe { libc::exit(0) }
}

/// Blocks until the thread that writes a report ends the process.
pub fn wait_for_exit() -> ! {
    loop {
        // SAFETY: pause has no precondition.
        unsafe { libc::pause() };
    }
}

/// Makes `exit`, and a return from C's `main`, wait for a report that has begun. Called once per
/// process.
pub fn install() {
    // SAFETY: `wait` can be called at any time. If the system refuses it, exits do not wait.
    unsafe { libc::atexit(wait) };
}

extern "C" fn wait() {
    // SAFETY: getpid has no precondition.
    if CLAIMED_BY_PID.load(Ordering::Relaxed) == unsafe { libc::getpid() } {
        wait_for_exit();
    }
}
