//! The twin of std's cells for models: loom watches who uses them when.

use loom::cell::UnsafeCell;

/// As `std::cell::Cell`.
#[derive(Debug)]
pub(crate) struct Cell<T>(UnsafeCell<T>);

impl<T: Copy> Cell<T> {
    pub(crate) fn new(value: T) -> Cell<T> {
        Cell(UnsafeCell::new(value))
    }

    pub(crate) fn get(&self) -> T {
        // SAFETY: loom complains if somebody writes.
        self.0.with(|value| unsafe { *value })
    }

    pub(crate) fn set(&self, value: T) {
        self.replace(value);
    }

    pub(crate) fn replace(&self, value: T) -> T {
        // SAFETY: loom complains if it is not the only access.
        self.0.with_mut(|place| unsafe { std::mem::replace(&mut *place, value) })
    }
}
