//! Where memory cannot be given back without its addresses, it is kept.

/// Does nothing.
///
/// # Safety
/// - **unused**: nobody needs what is in it.
pub(crate) unsafe fn discard(_memory: *mut [u8]) {}
