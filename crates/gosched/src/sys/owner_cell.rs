//! A value in shared memory that has one owner at a time, and no lock. Ownership is passed on by
//! other means: a queue, a context switch, a state. The cell never checks that the caller is the
//! owner.

use std::cell::UnsafeCell;

/// A cell that only the current owner accesses.
pub(crate) struct OwnerCell<T>(UnsafeCell<T>);

// SAFETY: only the owner accesses the value, and each transfer of ownership orders the accesses of
// the old owner before those of the new one. The callers of `get` promise both.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    pub(crate) const fn new(value: T) -> OwnerCell<T> {
        OwnerCell(UnsafeCell::new(value))
    }

    /// Returns a mutable reference to the value.
    ///
    /// # Safety
    /// - **owner**: the caller owns the value now, and no other reference to it is in use.
    #[expect(clippy::mut_from_ref, reason = "the caller is the owner: it promises so")]
    pub(crate) unsafe fn get(&self) -> &mut T {
        // SAFETY: owner — promised by the caller.
        unsafe { &mut *self.0.get() }
    }

    /// Returns a pointer to the value.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}

impl<T> std::fmt::Debug for OwnerCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnerCell").finish_non_exhaustive()
    }
}
