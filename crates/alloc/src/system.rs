//! Memory to the system, where that can be told.

/// Gives the memory back; the addresses stay. What was in it is lost.
///
/// # Safety
/// - **unused**: nobody needs what is in it; it is ours, and whole pages.
pub(crate) unsafe fn discard(memory: *mut [u8]) {
    // SAFETY: unused — promised by the caller. Refused (locked memory, say), it just stays.
    unsafe { libc::madvise(memory.cast(), memory.len(), libc::MADV_DONTNEED) };
}
