//! Makes a forked child unable to use the runtime: its Ms exist only in the parent.
//!
//! No fork handler takes the runtime's locks beforehand. libc's fork waits for libc's own locks,
//! which a stopped goroutine may hold; that goroutine needs the scheduler in order to continue. So
//! another thread may have left the tables in the middle of a change, and the child does not rely
//! on what the lock protects. Code in the child may compute, allocate, start threads with
//! `pthread_create`, `exec` or exit. A mutex or a channel whose lock was free at the fork can be
//! used without waiting. Starting a goroutine or waiting panics with a message. A goroutine of the
//! parent that the child makes ready never runs, and a preemption request that the child inherits
//! is dropped.
//!
//! The fork handler never repairs a table: it only sets a flag and frees two locks.

use crate::sched::state::global::SCHED;
use crate::sys::forked;
use std::sync::atomic::Ordering;

/// Registers the fork handler. Called once, when the runtime starts.
pub(crate) fn install() {
    // SAFETY: the handler touches only two locks and a flag. If libc has no memory to register it,
    // a forked child is not protected from using the runtime.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

extern "C" fn child() {
    forked::CHILD.store(true, Ordering::Relaxed);
    // SAFETY: child — a fork handler runs on the child's only thread, and no code forks while it
    // holds the lock.
    unsafe { SCHED.lock.repair_in_child(|_| ()) };
    // SAFETY: child — as above.
    unsafe { crate::gmp::g::repair_in_child() };
}
