//! Whether this process was forked from one that had the runtime, and so has none.

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) static CHILD: AtomicBool = AtomicBool::new(false);

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
