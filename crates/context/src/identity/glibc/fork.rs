//! What a fork must not break: the child gets this crate's locks free, and knows what it is.
//!
//! A child forked by a goroutine goes on with the goroutine's identity, on its stack. The carrier's
//! identity is not its to use any more: to libc the carrier was another thread, and its stack is
//! free for reuse. So in the child [`host`](crate::host) stays where it is, [`suspend`](crate::suspend)
//! panics, and the end of the goroutine is the end of the process, as with a thread that forked: a
//! runtime built on this crate is over in the child. Allocating, starting threads
//! and `exec` work as after any fork.

use super::{BANK, PROBING, WRITING, loading};
use crate::barrier;
use crate::carrier;
use crate::fault;
use crate::stack::DEPOT;
use crate::unsupported::Unsupported;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the handlers are in force.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`: a fork during the first probe must find the handlers in force, and the probe
/// takes a lock.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        barrier::init();
        let _ = install();
    }
    before_main
};

/// Puts the handlers in force, if that was not done before `main`.
pub(super) fn install() -> Result<(), Unsupported> {
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the handlers touch only this crate's locks, in one order.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        errno => {
            INSTALLED.store(false, Ordering::Relaxed);
            let error = std::io::Error::from_raw_os_error(errno);
            Err(Unsupported::passing("a handler for forks", error.to_string()))
        }
    }
}

extern "C" fn prepare() {
    PROBING.hold();
    fault::before_fork();
    loading::before_fork();
    WRITING.hold();
    BANK.hold();
    DEPOT.before_fork();
}

extern "C" fn parent() {
    // SAFETY: held — taken by `prepare` on this thread.
    unsafe { DEPOT.after_fork() };
    // SAFETY: held — as above.
    unsafe { BANK.release() };
    // SAFETY: held — as above.
    unsafe { WRITING.release() };
    // SAFETY: held — as above.
    unsafe { loading::after_fork() };
    // SAFETY: held — as above.
    unsafe { fault::after_fork() };
    // SAFETY: held — as above.
    unsafe { PROBING.release() };
}

extern "C" fn child() {
    barrier::init();
    carrier::lost_in_fork();
    parent();
}
