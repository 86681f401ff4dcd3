//! A fork finds every lock free: whoever forks holds them all, and gives them back on both sides.
//!
//! The handlers must be the first to be registered, and are then the last to run before the fork: others'
//! may allocate, and may wait for threads that do. So on Linux this happens before `main`, before other
//! crates'; elsewhere with the first allocation.
//!
//! In the child, what other threads kept is lost: a megabyte each at most.

use crate::pool::POOL;
use crate::shelf;
use gosched_context::Still;
use std::sync::atomic::{AtomicBool, Ordering};

/// Puts the handlers in force, if that was not done.
pub(crate) fn install() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers touch only this crate's locks, in one order.
        let failed = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        // No memory for three words: the next one tries again.
        INSTALLED.store(failed == 0, Ordering::Relaxed);
    }
}

extern "C" fn prepare() {
    // SAFETY: here — given back by `parent` or `child`, which the same thread runs right after.
    std::mem::forget(unsafe { Still::new() });
    for shelf in shelf::all() {
        shelf.hold();
    }
    POOL.hold();
}

extern "C" fn parent() {
    // SAFETY: held — by `prepare`, in this thread.
    unsafe { POOL.release() };
    for shelf in shelf::all() {
        // SAFETY: held — as above.
        unsafe { shelf.release() };
    }
    // SAFETY: forgotten — by `prepare`.
    drop(unsafe { Still::take_up() });
}

extern "C" fn child() {
    // SAFETY: held — by `prepare`, in the thread that this one is a copy of.
    unsafe { POOL.release_in_child() };
    for shelf in shelf::all() {
        // SAFETY: held — as above.
        unsafe { shelf.release_in_child() };
    }
    // SAFETY: forgotten — by `prepare`.
    drop(unsafe { Still::take_up() });
}
