//! A goroutine that waits for `n` tasks: a counter, and the last task unparks the goroutine.

use gosched::{Goroutine, park};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of tasks, and the goroutine that waits until the counter is 0.
pub(crate) struct WaitGroup {
    left: AtomicU64,
    waiter: Goroutine,
}

impl WaitGroup {
    /// Name of this way to wait in the results.
    pub(crate) const HOW: &'static str = "counter+unpark";

    /// Creates a group whose waiter is the caller, for `n` calls of [`WaitGroup::done`].
    pub(crate) fn new(n: u64) -> Arc<WaitGroup> {
        let Some(waiter) = gosched::current() else { unreachable!("workloads are goroutines") };
        Arc::new(WaitGroup { left: AtomicU64::new(n), waiter })
    }

    /// Returns how many calls of [`WaitGroup::done`] are missing.
    pub(crate) fn left(&self) -> u64 {
        // PAIR wait-group-left: a reader that sees 0 also sees what all tasks did.
        self.left.load(Ordering::Acquire)
    }

    pub(crate) fn done(&self) {
        // PAIR wait-group-left: publishes what this task did.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    /// Waits until no call is missing. An `unpark` may be left from an earlier wait, so each
    /// wake-up checks the counter again.
    pub(crate) fn wait(&self) {
        while self.left() != 0 {
            park();
        }
    }
}
