//! Goroutines that belong together: those that a test started, and those that they started.

use super::current;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A goroutine is in the group of the one that started it. Groups are never freed.
#[derive(Debug)]
pub(crate) struct TestGroup {
    live: AtomicUsize,
}

impl TestGroup {
    /// An empty group: allocates.
    #[inline]
    pub(crate) fn new() -> &'static TestGroup {
        Box::leak(Box::new(TestGroup { live: AtomicUsize::new(0) }))
    }

    /// The calling goroutine is in it from here on.
    #[inline]
    pub(crate) fn enter(group: &'static TestGroup) {
        if let Some(g) = current::goroutine() {
            group.add_live(1);
            g.set_group(Some(group));
        }
    }

    #[inline]
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add_live(&self, change: isize) {
        self.live.fetch_add(change as usize, Ordering::Relaxed);
    }
}
