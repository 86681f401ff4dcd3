//! Whether this process is a forked child: a process that was forked from a process with the
//! runtime has no runtime itself, because only the forking thread exists in it. This module never
//! asks the system: the fork handler in `sched/state/fork.rs` sets `CHILD`.

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) static CHILD: AtomicBool = AtomicBool::new(false);

/// Returns whether this process was forked from a process that had the runtime.
#[inline]
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// Checks that this process is not a forked child, where `what` is not supported.
///
/// # Panics
/// This process is a forked child. Call `exec` or exit, or fork before the runtime starts.
#[track_caller]
#[inline]
pub(crate) fn refuse_in_child(what: &str) {
    assert!(
        !is_child(),
        "{what} is not possible in a forked child: the runtime's goroutines and threads are in the \
         parent; call `exec` or exit, or fork before the runtime starts"
    );
}
