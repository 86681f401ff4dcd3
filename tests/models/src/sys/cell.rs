//! The loom version of std's cells, for models. loom reports conflicting accesses.

use loom::cell::UnsafeCell;

/// Like `std::cell::Cell`.
#[derive(Debug)]
pub(crate) struct Cell<T>(UnsafeCell<T>);

impl<T: Copy> Cell<T> {
    pub(crate) fn new(value: T) -> Cell<T> {
        Cell(UnsafeCell::new(value))
    }

    pub(crate) fn get(&self) -> T {
        // SAFETY: loom fails the model if another thread writes at the same time.
        self.0.with(|value| unsafe { *value })
    }

    pub(crate) fn set(&self, value: T) {
        self.replace(value);
    }

    pub(crate) fn replace(&self, value: T) -> T {
        // SAFETY: loom fails the model if there is another access at the same time.
        self.0.with_mut(|place| unsafe { std::mem::replace(&mut *place, value) })
    }
}
