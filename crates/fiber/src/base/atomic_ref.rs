//! A word that holds a reference to a value that is never freed, or nothing. This module never
//! frees a value.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An atomic `Option<&'static T>`.
pub struct AtomicRef<T: 'static>(AtomicPtr<T>);

fn pointer<T>(reference: Option<&'static T>) -> *mut T {
    reference.map_or(ptr::null(), ptr::from_ref).cast_mut()
}

fn reference<T>(pointer: *mut T) -> Option<&'static T> {
    // SAFETY: null, or a `&'static T`: no other pointer is ever stored.
    unsafe { pointer.as_ref() }
}

impl<T: Sync> AtomicRef<T> {
    /// Creates a word that holds nothing.
    pub const fn new() -> AtomicRef<T> {
        AtomicRef(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the reference.
    #[inline]
    pub fn load(&self, order: Ordering) -> Option<&'static T> {
        reference(self.0.load(order))
    }

    /// Replaces the reference.
    #[inline]
    pub fn store(&self, new: Option<&'static T>, order: Ordering) {
        self.0.store(pointer(new), order);
    }

    /// Replaces the reference and returns the previous one.
    #[inline]
    pub fn swap(&self, new: Option<&'static T>, order: Ordering) -> Option<&'static T> {
        reference(self.0.swap(pointer(new), order))
    }

    /// Replaces the reference if it is still `now`.
    ///
    /// # Errors
    /// The word holds another reference, which is returned.
    pub fn compare_exchange(
        &self,
        now: Option<&'static T>,
        new: Option<&'static T>,
        done: Ordering,
        failed: Ordering,
    ) -> Result<(), Option<&'static T>> {
        let result = self.0.compare_exchange(pointer(now), pointer(new), done, failed);
        result.map(drop).map_err(reference)
    }
}

impl<T: Sync> Default for AtomicRef<T> {
    fn default() -> AtomicRef<T> {
        AtomicRef::new()
    }
}

impl<T> fmt::Debug for AtomicRef<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
