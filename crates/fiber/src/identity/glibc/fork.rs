//! What a fork must not break: the child gets this crate's locks free, and knows what it is.
//!
//! The fork waits for none of our locks that goroutines may need: libc's fork waits for libc's, and whoever has one of those may be a
//! goroutine that is stopped and needs what we would hold. So the child mends what it finds in the middle of
//! something.
//!
//! A child forked by a goroutine goes on with the goroutine's identity, on its stack. The carrier's
//! identity is not its to use any more: to libc the carrier was another thread, and its stack is
//! free for reuse. So in the child [`host`](crate::host) stays where it is, [`suspend`](crate::suspend)
//! panics, and the end of the goroutine is the end of the process, as with a thread that forked: a
//! runtime built on this crate is over in the child. Allocating, starting threads
//! and `exec` work as after any fork.

use super::{IDENTITY_WRITE_LOCK, PROBE_LOCK, SAVED_LIBC_TLS, loading};
use crate::barrier;
use crate::base::unsupported::Unsupported;
use crate::carrier;
use crate::fault;
use crate::stack::DEPOT;
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
    // SAFETY: the handler touches only this crate's locks.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        errno => {
            INSTALLED.store(false, Ordering::Relaxed);
            let error = std::io::Error::from_raw_os_error(errno);
            Err(Unsupported::transient("a handler for forks", error.to_string()))
        }
    }
}

/// The child would never see the layout found out. Nobody waits for this who has a P.
extern "C" fn prepare() {
    PROBE_LOCK.acquire();
}

extern "C" fn parent() {
    // SAFETY: held — taken by `prepare` on this thread.
    unsafe { PROBE_LOCK.release() };
}

extern "C" fn child() {
    barrier::init();
    carrier::mark_forked_child();
    // SAFETY: child — this is one; held — by `prepare`, in the thread that this one is a copy of.
    unsafe { PROBE_LOCK.repair_in_child(|()| ()) };
    // SAFETY: child — this is one; none of these is held where user code, and so a fork, can run.
    unsafe { IDENTITY_WRITE_LOCK.repair_in_child(|()| ()) };
    // What was in it is lost.
    // SAFETY: child — as above.
    unsafe { SAVED_LIBC_TLS.repair_in_child(|bank| std::mem::forget(std::mem::take(bank))) };
    // SAFETY: child — as above.
    unsafe { fault::repair_in_child() };
    // SAFETY: child — as above.
    unsafe { loading::repair_in_child() };
    // SAFETY: child — as above.
    unsafe { DEPOT.repair_in_child() };
}
