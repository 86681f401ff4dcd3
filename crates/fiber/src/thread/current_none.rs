//! Stand-in for `current` on systems without a port: no thread carries goroutines. `take`, `give`
//! and `row` are never called.

use crate::magazine::Magazine;

/// Returns `false`: there are no goroutines.
#[inline(always)]
pub(crate) fn is_goroutine() -> bool {
    false
}

/// Never called.
///
/// # Safety
/// - **goroutine**: the caller is a goroutine. There are none.
pub(crate) unsafe fn take(_size: usize) -> *mut u8 {
    unreachable!("never called on a system without a port")
}

/// Never called.
///
/// # Safety
/// - **goroutine**: the caller is a goroutine. There are none.
pub(crate) unsafe fn give(_size: usize, _block: *mut u8) -> bool {
    unreachable!("never called on a system without a port")
}

/// Never called.
pub(crate) fn row() -> *const Magazine {
    unreachable!("never called on a system without a port")
}

/// Does nothing: there is no carrier that needs the row.
///
/// # Safety
/// - **alive**: as for [`set_row`](crate::magazine::set_row).
pub(crate) unsafe fn set_row(_row: *const Magazine) {}
