//! What a fork must not break: the child gets this crate's locks free, and knows what it is.
//!
//! A child forked by a goroutine goes on with the goroutine's identity, on its stack. The carrier's
//! identity is not its to use any more: to libc the carrier was another thread, and its stack is
//! free for reuse. So in the child [`host`](crate::host) stays where it is, and there is no carrier
//! to go back to: a runtime built on this crate is over in the child. Allocating, starting threads
//! and `exec` work as after any fork.

use super::BUILDING;
use crate::stack::DEPOT;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked off one that ran goroutines.
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

pub(super) fn install() {
    // SAFETY: the handlers touch only this crate's locks, in one order.
    let failed = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    // ENOMEM is all that can go wrong; then a fork at the wrong moment leaves a lock held.
    debug_assert_eq!(failed, 0);
}

extern "C" fn prepare() {
    BUILDING.before_fork();
    DEPOT.before_fork();
}

extern "C" fn parent() {
    // SAFETY: held — taken by `prepare` on this thread.
    unsafe { DEPOT.after_fork() };
    // SAFETY: held — as above.
    unsafe { BUILDING.after_fork() };
}

extern "C" fn child() {
    FORKED.store(true, Ordering::Relaxed);
    parent();
}
