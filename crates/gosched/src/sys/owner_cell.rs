//! A value in shared memory that has one owner at a time, and no lock: ownership goes from hand to
//! hand by other means (a queue, a switch, a state).

use std::cell::UnsafeCell;

/// See the top of this file.
pub(crate) struct OwnerCell<T>(UnsafeCell<T>);

// SAFETY: only the owner touches the value, and ownership is handed on in order: promised by
// whoever calls `get`.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    pub(crate) const fn new(value: T) -> OwnerCell<T> {
        OwnerCell(UnsafeCell::new(value))
    }

    /// # Safety
    /// - **owner**: the caller owns the value now, and no other reference to it is in use.
    #[expect(clippy::mut_from_ref, reason = "the caller is the owner: it promises so")]
    pub(crate) unsafe fn get(&self) -> &mut T {
        // SAFETY: owner — promised by the caller.
        unsafe { &mut *self.0.get() }
    }

    /// Where the value is.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}

impl<T> std::fmt::Debug for OwnerCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owned").finish_non_exhaustive()
    }
}
