//! What code that may or may not be a goroutine asks of the thread that carries it.

use crate::arch;
use crate::carrier::{Role, is_attached, role};
use crate::magazine::Magazine;

/// Whether the caller is a goroutine.
#[inline(always)]
pub(crate) fn is_goroutine() -> bool {
    role() == Role::Goroutine
}

/// As [`magazine::take`](crate::magazine::take), from the carrier's row.
///
/// # Safety
/// - **goroutine**: the caller is one.
/// - **size**: as there.
#[inline(always)]
pub(crate) unsafe fn take(size: usize) -> *mut u8 {
    // SAFETY: carried — goroutines are; size — promised by the caller.
    unsafe { arch::take_block(size) }
}

/// As [`magazine::give`](crate::magazine::give), to the carrier's row.
///
/// # Safety
/// - **goroutine**: the caller is one.
/// - **size**, **block**: as there.
#[inline(always)]
pub(crate) unsafe fn give(size: usize, block: *mut u8) -> bool {
    // SAFETY: carried — goroutines are; size, block — promised by the caller.
    unsafe { arch::give_block(size, block) }
}

/// The carrier's row, for a goroutine.
pub(crate) fn row() -> *const Magazine {
    // SAFETY: carried — the caller is a goroutine.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — a carrier stays where it is while it carries.
    unsafe { (*carrier).row() }
}

/// Shows a thread's row to the goroutines it carries, if it does.
///
/// # Safety
/// - **alive**: as for [`set_row`](crate::magazine::set_row).
pub(crate) unsafe fn set_row(row: *const Magazine) {
    if is_attached() || is_goroutine() {
        // SAFETY: carried — the thread has a carrier; in `host` too, where its role is foreign.
        let carrier = unsafe { arch::carrier() };
        // SAFETY: alive — a carrier stays where it is while it carries.
        unsafe { (*carrier).set_row(row) };
    }
}
