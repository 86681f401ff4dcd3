//! A forked child finds every lock free.
//!
//! The fork waits for none of them: libc's fork waits for libc's locks, and whoever has one of those may be a
//! goroutine that is stopped and needs what we would hold. A class, or the pool, that another thread was
//! changing at that moment starts over in the child: what it had is lost there. So is what other threads kept:
//! a megabyte each at most.

use crate::central;
use crate::pool::{self, POOL, Pool};
use std::sync::atomic::{AtomicBool, Ordering};

/// Puts the handler in force, if that was not done.
pub(crate) fn install() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler touches only this crate's locks.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(child)) };
        // No memory for three words: the next one tries again.
        INSTALLED.store(failed == 0, Ordering::Relaxed);
    }
}

extern "C" fn child() {
    // SAFETY: child — this is one; nothing that is done with these locks held forks.
    unsafe { POOL.repair_in_child(|pool| *pool = Pool::new()) };
    pool::forget_growth();
    for central in central::all() {
        // SAFETY: child — as above.
        unsafe { central.repair_in_child(central::CentralList::reset_after_fork) };
    }
}
