//! Makes every lock of the allocator free in a forked child.
//!
//! The fork does not wait for these locks. libc's fork waits for libc's own locks, and the holder
//! of such a lock may be a stopped goroutine that needs one of ours. If another thread was changing
//! a class or the pool at the moment of the fork, the child starts over with an empty one: the
//! blocks or spans in it are lost to the child. So are the blocks that other threads have cached,
//! at most 1.2 MB per thread.
//!
//! The handler never waits for a lock and never allocates.

use crate::central;
use crate::pool::{self, POOL, Pool};
use std::sync::atomic::{AtomicBool, Ordering};

/// Installs the fork handler, unless it is installed.
pub(crate) fn install() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler touches only this crate's locks.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(child)) };
        // It fails if there is no memory: the next call tries again.
        INSTALLED.store(failed == 0, Ordering::Relaxed);
    }
}

extern "C" fn child() {
    // SAFETY: child — the handler runs on the only thread of the child; no code forks with one of
    // these locks held.
    unsafe { POOL.repair_in_child(|pool| *pool = Pool::new()) };
    pool::forget_growth();
    for central in central::all() {
        // SAFETY: child — as above.
        unsafe { central.repair_in_child(central::CentralList::reset_after_fork) };
    }
}
