//! Access to the carrier, for code that may or may not run in a goroutine. GS is never read on a
//! thread without a carrier: the callers of these functions check first, and `set_row` checks
//! itself.

use crate::arch;
use crate::carrier::{Role, is_attached, role};
use crate::magazine::Magazine;

/// Returns whether the caller is a goroutine.
#[inline(always)]
pub(crate) fn is_goroutine() -> bool {
    role() == Role::Goroutine
}

/// Like [`magazine::take`](crate::magazine::take), from the carrier's row.
///
/// # Safety
/// - **goroutine**: the caller is a goroutine.
/// - **size**: as for `magazine::take`.
#[inline(always)]
pub(crate) unsafe fn take(size: usize) -> *mut u8 {
    // SAFETY: carried — goroutines run on carriers; size — promised by the caller.
    unsafe { arch::take_block(size) }
}

/// Like [`magazine::give`](crate::magazine::give), to the carrier's row.
///
/// # Safety
/// - **goroutine**: the caller is a goroutine.
/// - **size**, **block**: as for `magazine::give`.
#[inline(always)]
pub(crate) unsafe fn give(size: usize, block: *mut u8) -> bool {
    // SAFETY: carried — goroutines run on carriers; size, block — promised by the caller.
    unsafe { arch::give_block(size, block) }
}

/// Returns the carrier's row. Called only by goroutines.
pub(crate) fn row() -> *const Magazine {
    // SAFETY: carried — the caller is a goroutine.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — a carrier is neither moved nor freed while a goroutine runs on it.
    unsafe { (*carrier).row() }
}

/// Publishes the calling thread's row to the goroutines that the thread carries. Does nothing if
/// the thread has no carrier.
///
/// # Safety
/// - **alive**: as for [`set_row`](crate::magazine::set_row).
pub(crate) unsafe fn set_row(row: *const Magazine) {
    if is_attached() || is_goroutine() {
        // SAFETY: carried — the thread has a carrier, even inside `host`, where its role is
        // foreign.
        let carrier = unsafe { arch::carrier() };
        // SAFETY: alive — an attached carrier is neither moved nor freed.
        unsafe { (*carrier).set_row(row) };
    }
}
