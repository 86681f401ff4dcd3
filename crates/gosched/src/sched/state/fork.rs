//! A forked child has no runtime: its Ms are in the parent.
//!
//! The fork waits for no lock of ours: libc's fork waits for libc's, which a goroutine may hold that is stopped
//! and needs the scheduler to go on. So the tables may be as another thread left them in the middle of
//! something, and the child uses none of them. What is left there
//! computes, allocates, starts threads, `exec`s or exits; starting goroutines and waiting panics with
//! a sentence.

use crate::sched::state::global::SCHED;
use crate::sys::forked;
use std::sync::atomic::Ordering;

/// Called once, when the runtime starts.
pub(crate) fn install() {
    // SAFETY: the handler touches one lock and one flag. Without memory for it forks are not safe
    // in the child, as with any library.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

extern "C" fn child() {
    forked::CHILD.store(true, Ordering::Relaxed);
    // SAFETY: child — this is one; nothing that is done with the lock held forks.
    unsafe { SCHED.lock.repair_in_child(|_| ()) };
    // SAFETY: child — as above.
    unsafe { crate::gmp::g::repair_in_child() };
}
