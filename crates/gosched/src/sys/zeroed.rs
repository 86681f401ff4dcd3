//! Large arrays of zeroed memory from the system. A page is in memory only once it was written to.
//! This module never gives the addresses back to the system: threads may keep references.

use std::io;

/// A type whose values may be zeroed bytes, and which has nothing to drop.
///
/// # Safety
/// - **zero**: a value of which all bytes are 0 is valid, and may be set to 0 by [`release`] while
///   threads access it.
pub(crate) unsafe trait Zeroed: Sync + 'static {}

/// Maps an array of `count` zeroed values, which is never freed.
///
/// # Errors
/// The system refuses the memory.
pub(crate) fn map<T: Zeroed>(count: usize) -> io::Result<&'static [T]> {
    const { assert!(align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>()) };
    let bytes = size_of::<T>() * count;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: maps new memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped — just above, and never unmapped; zero — new memory is zeroed, and `T` may be.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<T>(), count) })
}

/// Gives the memory of an array that [`map`] returned back to the system. Its values are zeroed.
pub(crate) fn release<T: Zeroed>(array: &'static [T]) {
    let at = array.as_ptr().cast_mut().cast();
    // SAFETY: mapped — by `map`; zero — the values may become 0 while threads access them.
    unsafe { libc::madvise(at, size_of_val(array), libc::MADV_DONTNEED) };
}
