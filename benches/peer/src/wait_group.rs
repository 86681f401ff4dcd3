//! A goroutine that waits for `n` others: a count, and the last one unparks it.

use gosched::{Goroutine, park};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the top of this file.
pub(crate) struct WaitGroup {
    left: AtomicU64,
    waiter: Goroutine,
}

impl WaitGroup {
    /// What the results say was used.
    pub(crate) const HOW: &'static str = "counter+unpark";

    /// The caller waits, for `n` calls of [`WaitGroup::done`].
    pub(crate) fn new(n: u64) -> Arc<WaitGroup> {
        let Some(waiter) = gosched::current() else { unreachable!("workloads are goroutines") };
        Arc::new(WaitGroup { left: AtomicU64::new(n), waiter })
    }

    /// How many calls are still to come.
    pub(crate) fn left(&self) -> u64 {
        // PAIR wait-group-left: with 0, sees what all the tasks did.
        self.left.load(Ordering::Acquire)
    }

    pub(crate) fn done(&self) {
        // PAIR wait-group-left: publishes what this task did.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    /// A wake-up may be one that was meant for an earlier wait, so it only asks again.
    pub(crate) fn wait(&self) {
        while self.left() != 0 {
            park();
        }
    }
}
