//! A forked child has no runtime: its Ms are in the parent.
//!
//! The fork takes the scheduler's lock, so the child finds its tables whole; it waits first until no goroutine
//! is stopped that may hold a lock of libc's (`preempt`). What is left there
//! computes, allocates, starts threads, `exec`s or exits; starting goroutines and waiting panics with
//! a sentence.

use super::preempt;
use super::state::SCHED;
use gosched_context::Still;
use std::sync::atomic::{AtomicBool, Ordering};

static CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that had the runtime.
#[inline]
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// # Panics
/// This is a forked child: `what` cannot be done.
#[track_caller]
#[inline]
pub(crate) fn refuse_in_child(what: &str) {
    assert!(
        !is_child(),
        "{what} called in a forked child: its goroutines and threads are in the parent; call \
         `exec` or exit, or fork before the runtime starts"
    );
}

/// Called once, when the runtime starts.
pub(crate) fn install() {
    // SAFETY: the handlers touch one lock and one flag. Without memory for them forks are not safe
    // in the child, as with any library.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

extern "C" fn prepare() {
    preempt::before_fork();
    // SAFETY: here — given back by `parent` or `child`, which the same thread runs right after.
    std::mem::forget(unsafe { Still::new() });
    SCHED.lock.hold();
}

extern "C" fn parent() {
    // SAFETY: held — taken by `prepare` on this thread.
    unsafe { SCHED.lock.release() };
    // SAFETY: forgotten — by `prepare`.
    drop(unsafe { Still::take_up() });
    preempt::forked();
}

extern "C" fn child() {
    CHILD.store(true, Ordering::Relaxed);
    // SAFETY: held — taken by `prepare` in the thread that this one is a copy of.
    unsafe { SCHED.lock.release_in_child() };
    // SAFETY: forgotten — by `prepare`.
    drop(unsafe { Still::take_up() });
}
