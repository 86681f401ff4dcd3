//! A guard that turns preemption off: the running code is neither stopped nor moved to another
//! thread. The guard never serves a preemption request: the request stays pending until the
//! goroutine's next check.

use super::current::is_goroutine;
use crate::arch;
use crate::carrier::is_attached;
use std::marker::PhantomData;

/// Returns whether the caller can be neither stopped nor moved to another thread: it is an ordinary
/// thread, it has turned preemption off, or its carrier is not interruptible.
pub(crate) fn is_preempt_disabled() -> bool {
    if !is_goroutine() && !is_attached() {
        return true;
    }
    // SAFETY: carried — the caller is a goroutine, or a carrier's thread.
    let off = unsafe { arch::preempt_disable_count() };
    // SAFETY: carried — as above.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — an attached carrier is neither moved nor freed.
    off > 0 || !unsafe { &*carrier }.interruptible.get()
}

/// Keeps preemption off while it exists: the code that created it is neither stopped nor moved to
/// another thread. Has no effect on a thread that does not run goroutines.
#[must_use]
#[derive(Debug)]
pub struct NoPreempt {
    counted: bool,
    here: PhantomData<*mut ()>,
}

impl NoPreempt {
    /// Turns preemption off until the guard is dropped. A preemption request that arrives meanwhile
    /// stays pending: the drop does not serve it, the goroutine's next check does.
    ///
    /// # Safety
    /// - **here**: the thread or goroutine that creates the guard drops it, and until then neither
    ///   waits nor lets other code run.
    #[inline]
    pub unsafe fn new() -> NoPreempt {
        let counted = is_goroutine() || is_attached();
        if counted {
            // SAFETY: carried — checked above.
            unsafe { arch::preempt_disable() };
        }
        NoPreempt { counted, here: PhantomData }
    }
}

impl Drop for NoPreempt {
    #[inline]
    fn drop(&mut self) {
        if self.counted {
            // SAFETY: carried, counted — by `new`; here — the code has not moved to another thread.
            unsafe { arch::preempt_enable() };
        }
    }
}
