//! A fork finds every lock free: whoever forks holds them all, and gives them back on both sides.
//!
//! The handlers must be the first to be registered, and are then the last to run before the fork: others'
//! may allocate, and may wait for threads that do. So this happens before `main`, before other crates'.
//!
//! In the child, what other threads kept is lost: a megabyte each at most.

use crate::pool::POOL;
use crate::shelf;
use gosched_context::Still;

/// Runs before `main`, and before functions without a number there.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        // SAFETY: the handlers touch only this crate's locks, in one order.
        unsafe { libc::pthread_atfork(Some(prepare), Some(after), Some(after)) };
    }
    before_main
};

extern "C" fn prepare() {
    let still = Still::new();
    for shelf in shelf::all() {
        shelf.hold();
    }
    POOL.hold();
    // SAFETY: held — above; no other reference is in use.
    unsafe { POOL.value() }.forking = Some(still);
}

extern "C" fn after() {
    // SAFETY: held — by `prepare`, in this thread, or in the parent's that it is a copy of.
    let still = unsafe { POOL.value() }.forking.take();
    // SAFETY: held — as above.
    unsafe { POOL.release() };
    for shelf in shelf::all() {
        // SAFETY: held — as above.
        unsafe { shelf.release() };
    }
    drop(still);
}
