//! A guard that keeps the code of this thread where it is: not stopped, not moved to another thread.

use super::current::is_goroutine;
use crate::arch;
use crate::carrier::is_attached;
use std::marker::PhantomData;

/// Whether the caller is neither stopped nor moved now: it is a thread, or has said so, or nobody does such
/// things here.
pub(crate) fn is_preempt_disabled() -> bool {
    if !is_goroutine() && !is_attached() {
        return true;
    }
    // SAFETY: carried — the caller is a goroutine, or a carrier's thread.
    let off = unsafe { arch::preempt_disable_count() };
    // SAFETY: carried — as above.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — a carrier stays where it is while it carries.
    off > 0 || !unsafe { &*carrier }.interruptible.get()
}

/// While it lives the code that runs on this thread is neither stopped nor moved, if it runs goroutines
/// at all.
#[must_use]
#[derive(Debug)]
pub struct NoPreempt {
    counted: bool,
    here: PhantomData<*mut ()>,
}

impl NoPreempt {
    /// From now on. A request to stop waits for the end, and is then left to whoever looks next.
    ///
    /// # Safety
    /// - **here**: it is dropped by the same thread or goroutine, before that waits, or lets others run.
    #[inline]
    pub unsafe fn new() -> NoPreempt {
        let counted = is_goroutine() || is_attached();
        if counted {
            // SAFETY: carried — as above.
            unsafe { arch::preempt_disable() };
        }
        NoPreempt { counted, here: PhantomData }
    }
}

impl Drop for NoPreempt {
    #[inline]
    fn drop(&mut self) {
        if self.counted {
            // SAFETY: carried, counted — by `new`; here — it was not moved since.
            unsafe { arch::preempt_enable() };
        }
    }
}
