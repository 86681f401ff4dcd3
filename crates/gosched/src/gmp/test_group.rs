//! A group of goroutines: the goroutines that a test started, and all goroutines that they started.
//! A group never waits for its goroutines: `api::attributes` does.

use super::current;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A count of live goroutines. A goroutine belongs to the group of the goroutine that started it.
/// Groups are never freed.
#[derive(Debug)]
pub(crate) struct TestGroup {
    live: AtomicUsize,
}

impl TestGroup {
    /// Allocates an empty group.
    #[inline]
    pub(crate) fn new() -> &'static TestGroup {
        Box::leak(Box::new(TestGroup { live: AtomicUsize::new(0) }))
    }

    /// Adds the calling goroutine to `group`.
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
