//! The items of the queues in models: each has a plain value that its taker must see, and is taken
//! once.

use crate::explore::leak;
use loom::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A stand-in for a G.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) number: usize,
    /// Stands for the saved registers. loom reports a read that may come before the write.
    saved: UnsafeCell<usize>,
    /// Detects a second take. Not modelled by loom.
    taken: AtomicBool,
}

// SAFETY: loom checks the accesses to the cell.
unsafe impl Sync for Item {}

impl Item {
    /// Creates a saved item, which no other thread has seen yet.
    pub(super) fn new(number: usize) -> &'static Item {
        let item = Item::unsaved(number);
        item.save();
        item
    }

    /// Creates an item that is not saved yet.
    pub(super) fn unsaved(number: usize) -> &'static Item {
        leak(Item { number, saved: UnsafeCell::new(0), taken: AtomicBool::new(false) })
    }

    pub(super) fn save(&self) {
        // SAFETY: loom panics if there is a concurrent access.
        self.saved.with_mut(|saved| unsafe { *saved = self.number + 1 });
    }

    /// Runs the item. Panics if it is not saved, or if it was run before.
    pub(super) fn run(&self) {
        // SAFETY: loom panics if there is a concurrent write.
        let saved = self.saved.with(|saved| unsafe { *saved });
        assert_eq!(saved, self.number + 1, "the item was run before it was saved");
        assert!(!self.taken.swap(true, Ordering::Relaxed), "the item was taken twice");
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
