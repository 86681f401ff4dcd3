//! What queues hold in models: a plain value that must be seen, and taken once.

use super::leak;
use loom::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stands for a G.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) number: usize,
    /// Stands for the registers that were saved. loom complains of a reader that may come too early.
    saved: UnsafeCell<usize>,
    /// Not modelled: it only counts.
    taken: AtomicBool,
}

// SAFETY: loom watches over the cell.
unsafe impl Sync for Item {}

impl Item {
    /// An item that nobody else has seen yet.
    pub(super) fn new(number: usize) -> &'static Item {
        let item = Item::unsaved(number);
        item.save();
        item
    }

    /// One that is still to be saved.
    pub(super) fn unsaved(number: usize) -> &'static Item {
        leak(Item { number, saved: UnsafeCell::new(0), taken: AtomicBool::new(false) })
    }

    pub(super) fn save(&self) {
        // SAFETY: loom complains if it is not the only access.
        self.saved.with_mut(|saved| unsafe { *saved = self.number + 1 });
    }

    /// Runs it: it is whole, and nobody else has done so.
    pub(super) fn run(&self) {
        // SAFETY: loom complains if somebody writes.
        let saved = self.saved.with(|saved| unsafe { *saved });
        assert_eq!(saved, self.number + 1, "it was not saved yet");
        assert!(!self.taken.swap(true, Ordering::Relaxed), "it was taken twice");
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }
}

pub(super) fn assert_all_taken(items: &[&Item]) {
    for item in items {
        assert!(item.is_taken(), "item {} is lost", item.number);
    }
}
