//! A word that holds a reference to a value that is never freed, or nothing.
//!
//! A thread that loads a reference sees the value as it was when the reference was stored: a store
//! releases, and a load acquires. On x86-64 both are plain moves. This module never frees a value.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An atomic `Option<&'static T>` (see the top of this file).
pub struct AtomicRef<T: 'static>(AtomicPtr<T>);

fn pointer<T>(reference: Option<&'static T>) -> *mut T {
    reference.map_or(ptr::null(), ptr::from_ref).cast_mut()
}

impl<T: Sync> AtomicRef<T> {
    /// Creates a word that holds nothing.
    pub const fn new() -> AtomicRef<T> {
        AtomicRef(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the reference.
    #[inline]
    pub fn load(&self) -> Option<&'static T> {
        // PAIR atomic-ref: sees the value.
        let pointer = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a `&'static T` that was stored; its value is visible.
        unsafe { pointer.as_ref() }
    }

    /// Replaces the reference.
    #[inline]
    pub fn store(&self, new: Option<&'static T>) {
        // PAIR atomic-ref: publishes the value.
        self.0.store(pointer(new), Ordering::Release);
    }

    /// Replaces the reference and returns the previous one.
    #[inline]
    pub fn swap(&self, new: Option<&'static T>) -> Option<&'static T> {
        // PAIR atomic-ref: publishes the new value, and sees the previous one.
        let before = self.0.swap(pointer(new), Ordering::AcqRel);
        // SAFETY: null, or a `&'static T` that was stored; its value is visible.
        unsafe { before.as_ref() }
    }

    /// Replaces the reference if it is still `now`. Returns whether it was.
    pub fn replace_if(&self, now: Option<&'static T>, new: Option<&'static T>) -> bool {
        let (now, new) = (pointer(now), pointer(new));
        // PAIR atomic-ref: publishes the new value.
        self.0.compare_exchange(now, new, Ordering::Release, Ordering::Relaxed).is_ok()
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
