//! The process ends badly, and is about to say why: whoever would end it otherwise waits for that.
//!
//! The others go on while a report is written, which takes from milliseconds to seconds. Without this, a main that
//! returns meanwhile would end the process with status 0 and half a report.

use std::sync::atomic::{AtomicI32, Ordering};

/// The process that ends, by its number; 0: none does. A child that was forked meanwhile goes on.
static CLAIMED_BY_PID: AtomicI32 = AtomicI32::new(0);

/// From here on only who reports ends the process, by `_exit` or a signal. It has to: it has a watchdog. In signal
/// handlers too. False: another was first, and what it says should not be mixed with another report.
pub fn claim() -> bool {
    // SAFETY: it has no precondition.
    let own = unsafe { libc::getpid() };
    CLAIMED_BY_PID.swap(own, Ordering::Relaxed) != own
}

/// Whether a report has begun, in this process or in the one that forked it.
pub fn is_claimed() -> bool {
    CLAIMED_BY_PID.load(Ordering::Relaxed) != 0
}

/// Waits for another's report, which ends the process.
pub fn wait_for_exit() -> ! {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Lets `exit`, and whoever returns from C's `main`, wait for a report that has begun. Once for a process.
pub fn install() {
    // SAFETY: the function may be called at any time. If it is refused, exits do not wait.
    unsafe { libc::atexit(wait) };
}

extern "C" fn wait() {
    // SAFETY: it has no precondition.
    if CLAIMED_BY_PID.load(Ordering::Relaxed) == unsafe { libc::getpid() } {
        wait_for_exit();
    }
}
