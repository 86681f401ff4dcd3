//! Where there is no port every thread is its own: nothing carries anything.

use crate::magazine::Magazine;

/// As it says.
#[inline(always)]
pub(crate) fn is_goroutine() -> bool {
    false
}

/// Never called.
///
/// # Safety
/// - **goroutine**: the caller is one, and there are none.
pub(crate) unsafe fn take(_size: usize) -> *mut u8 {
    unreachable!("there are no goroutines")
}

/// Never called.
///
/// # Safety
/// - **goroutine**: the caller is one, and there are none.
pub(crate) unsafe fn give(_size: usize, _block: *mut u8) -> bool {
    unreachable!("there are no goroutines")
}

/// Never called.
pub(crate) fn row() -> *const Magazine {
    unreachable!("there are no goroutines")
}

/// Nobody else wants to know.
///
/// # Safety
/// - **alive**: as for [`set_row`](crate::magazine::set_row).
pub(crate) unsafe fn set_row(_row: *const Magazine) {}
