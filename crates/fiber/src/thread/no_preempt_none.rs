//! Where there is no port no code is stopped or moved.

use std::marker::PhantomData;

/// As it says.
pub(crate) fn is_preempt_disabled() -> bool {
    true
}

/// Nothing is stopped or moved here anyway.
#[must_use]
#[derive(Debug)]
pub struct NoPreempt {
    here: PhantomData<*mut ()>,
}

impl NoPreempt {
    /// From now on.
    ///
    /// # Safety
    /// - **here**: as the other's.
    #[inline]
    pub unsafe fn new() -> NoPreempt {
        NoPreempt { here: PhantomData }
    }
}
