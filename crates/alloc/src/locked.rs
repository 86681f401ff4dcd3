//! A lock that is held by code which is neither stopped nor moved: others wait for it for moments only.

use gosched_context::Still;
use gosched_context::lock::{Lock, Locked};
use std::ops::{Deref, DerefMut};

/// The right to use the value.
#[must_use]
#[derive(Debug)]
pub(crate) struct Guarded<'a, T> {
    // Given back first.
    locked: Locked<'a, T>,
    _still: Still,
}

impl<'a, T> Guarded<'a, T> {
    pub(crate) fn new(lock: &'a Lock<T>) -> Guarded<'a, T> {
        // SAFETY: here — nothing that is done with a lock held waits or switches.
        let still = unsafe { Still::new() };
        Guarded { locked: lock.lock(), _still: still }
    }
}

impl<T> Deref for Guarded<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.locked
    }
}

impl<T> DerefMut for Guarded<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.locked
    }
}
