//! Goroutines that belong together: those that a test started, and those that they started.

use super::current;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A goroutine is in the group of the one that started it. Groups are never freed.
#[derive(Debug)]
pub(crate) struct Group {
    live: AtomicUsize,
}

impl Group {
    /// An empty group: allocates.
    #[inline]
    pub(crate) fn new() -> &'static Group {
        Box::leak(Box::new(Group { live: AtomicUsize::new(0) }))
    }

    /// The calling goroutine is in it from here on.
    #[inline]
    pub(crate) fn join(group: &'static Group) {
        if let Some(g) = current::goroutine() {
            group.count(1);
            g.set_group(Some(group));
        }
    }

    #[inline]
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn count(&self, change: isize) {
        self.live.fetch_add(change as usize, Ordering::Relaxed);
    }
}
