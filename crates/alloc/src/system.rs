//! Returns memory to the system. This module never unmaps it: the addresses stay reserved.

/// Returns memory to the system. The addresses stay reserved, and the contents are lost.
///
/// # Safety
/// - **unused**: the memory is whole pages that belong to the caller, and its contents are not
///   needed.
pub(crate) unsafe fn discard(memory: *mut [u8]) {
    // SAFETY: unused — promised by the caller. If the system refuses (locked memory, for example),
    // the memory stays as it is.
    unsafe { libc::madvise(memory.cast(), memory.len(), libc::MADV_DONTNEED) };
}
