//! Stand-in for `no_preempt` on systems without a port: code is never stopped or moved.

use std::marker::PhantomData;

/// Returns `true`: code is never stopped or moved.
pub(crate) fn is_preempt_disabled() -> bool {
    true
}

/// A guard without effect.
#[must_use]
#[derive(Debug)]
pub struct NoPreempt {
    here: PhantomData<*mut ()>,
}

impl NoPreempt {
    /// Creates the guard.
    ///
    /// # Safety
    /// - **here**: as on systems with a port (`no_preempt.rs`).
    #[inline]
    pub unsafe fn new() -> NoPreempt {
        NoPreempt { here: PhantomData }
    }
}
