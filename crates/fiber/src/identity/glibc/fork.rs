//! Fork handlers: in the child, this crate's locks are free and the goroutine that forked is marked
//! as such.
//!
//! Before a fork, no lock is acquired that a goroutine may need. libc's fork waits for libc's own
//! locks; the owner of such a lock may be a stopped goroutine that cannot continue without a lock
//! that the forking thread would hold. Instead, the child repairs what another thread was changing
//! at the moment of the fork.
//!
//! A child forked by a goroutine continues with the goroutine's identity, on the goroutine's stack.
//! It must not use the carrier's identity: to libc the carrier was another thread, and libc may
//! reuse its stack in the child. So in the child [`host`](crate::host) does not switch to the
//! carrier, [`suspend`](crate::suspend) panics, and the end of the goroutine is the end of the
//! process, as for a thread that forked. A runtime built on this crate does not run in the child.
//! Allocating, starting threads and `exec` work as after any fork.
//!
//! The handlers never allocate and never free memory: the allocator's own handler may not have run
//! yet.

use super::{IDENTITY_WRITE_LOCK, PROBE_LOCK, SAVED_LIBC_TLS, loading};
use crate::barrier;
use crate::base::unsupported::Unsupported;
use crate::carrier;
use crate::fault;
use crate::stack::DEPOT;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the handlers are installed.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Installs the handlers before `main`: they must be installed before the first probe, which takes
/// a lock that a fork must wait for.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        barrier::init();
        let _ = install();
    }
    before_main
};

/// Installs the handlers, unless that was done before `main`.
pub(super) fn install() -> Result<(), Unsupported> {
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the handlers use only this crate's own state.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        errno => {
            INSTALLED.store(false, Ordering::Relaxed);
            let error = std::io::Error::from_raw_os_error(errno);
            Err(Unsupported::transient("a pthread_atfork handler", error.to_string()))
        }
    }
}

/// Waits until no probe is running: in the child, a probe of another thread would never finish. No
/// M waits for this lock while it holds a P.
extern "C" fn prepare() {
    PROBE_LOCK.acquire();
}

extern "C" fn parent() {
    // SAFETY: held — acquired by `prepare` on this thread.
    unsafe { PROBE_LOCK.release() };
}

extern "C" fn child() {
    barrier::init();
    carrier::mark_forked_child();
    // SAFETY: child — this is the child; held — by `prepare`, in the thread that this one is a copy
    // of.
    unsafe { PROBE_LOCK.repair_in_child(|()| ()) };
    // SAFETY: child — as above; no user code, and so no fork, runs while the forking thread holds
    // one of these.
    unsafe { IDENTITY_WRITE_LOCK.repair_in_child(|()| ()) };
    // The saved values are leaked: another thread may have been changing the vector.
    // SAFETY: child — as above.
    unsafe { SAVED_LIBC_TLS.repair_in_child(|bank| std::mem::forget(std::mem::take(bank))) };
    // SAFETY: child — as above.
    unsafe { fault::repair_in_child() };
    // SAFETY: child — as above.
    unsafe { loading::repair_in_child() };
    // SAFETY: child — as above.
    unsafe { DEPOT.repair_in_child() };
}
