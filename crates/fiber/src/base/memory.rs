//! Copies memory that another thread may change or unmap meanwhile. The kernel makes the copy and
//! returns how much of the memory is readable. This module never dereferences the address itself,
//! so unmapped memory causes no fault.

/// Copies the memory at `from` into `to` and returns how many bytes were readable. The copy is not
/// atomic: some bytes may be older than others. Can be called in signal handlers; changes errno.
pub fn copy(from: usize, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: getpid has no precondition.
    let process = unsafe { libc::getpid() };
    // SAFETY: `to` is valid for writes; the kernel checks whether the memory at `from` is readable.
    let copied = unsafe { libc::process_vm_readv(process, &local, 1, &remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) => copied,
        Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) => 0,
        // Some sandboxes do not allow the call.
        Err(_) => copy_by_file(from, to),
    }
}

/// Maximum number of parts that one call of [`copy_parts`] copies.
pub const MAX_PARTS: usize = 64;

/// Copies parts of memory, each given by its address and length, into `to`, one after the other.
/// Returns the number of bytes copied: the copy ends at the first part that is not readable or does
/// not fit. Faster than one [`copy`] per part. Copies nothing if the system does not allow the
/// call.
pub fn copy_parts(parts: &[(usize, usize)], to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut remote = [nothing; MAX_PARTS];
    for (remote, &(from, len)) in remote.iter_mut().zip(parts) {
        *remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: len };
    }
    // SAFETY: getpid has no precondition.
    let process = unsafe { libc::getpid() };
    let count = parts.len().min(MAX_PARTS) as libc::c_ulong;
    // SAFETY: `to` is valid for writes; the kernel checks whether the parts are readable.
    let copied = unsafe { libc::process_vm_readv(process, &local, 1, remote.as_ptr(), count, 0) };
    usize::try_from(copied).unwrap_or(0)
}

fn copy_by_file(from: usize, to: &mut [u8]) -> usize {
    // Opened for each copy: after a fork, a file that was opened before would be the parent's
    // memory.
    // SAFETY: the path ends in a zero byte.
    let file = unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: `to` is valid for writes.
    let copied = unsafe { libc::pread(file, to.as_mut_ptr().cast(), to.len(), from as i64) };
    // SAFETY: `file` was opened above, or is -1, which `close` refuses.
    unsafe { libc::close(file) };
    usize::try_from(copied).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_copied_up_to_the_first_unreadable_part() {
        let words: Vec<u8> = (0..=255).collect();
        let at = words.as_ptr() as usize;
        let mut seen = [0; 256];
        assert_eq!(copy_parts(&[(at, 10), (at + 100, 20)], &mut seen), 30);
        assert_eq!((&seen[..10], &seen[10..30]), (&words[..10], &words[100..120]));
        let mut seen = [0; 256];
        assert_eq!(copy_parts(&[(at + 1, 10), (16, 20), (at, 5)], &mut seen), 10);
        assert_eq!((&seen[..10], &seen[10..]), (&words[1..11], &[0; 246][..]));
        assert_eq!(copy_parts(&[], &mut seen), 0);
        let parts = [(at, 2); MAX_PARTS + 1];
        assert_eq!(copy_parts(&parts, &mut seen), 2 * MAX_PARTS);
    }

    #[test]
    fn only_readable_memory_is_copied() {
        for copy in [copy, copy_by_file] {
            let words: Vec<u8> = (0..=255).collect();
            let mut seen = [0; 256];
            assert_eq!(copy(words.as_ptr() as usize, &mut seen), 256);
            assert_eq!(words, seen);
            assert_eq!(copy(16, &mut seen), 0);
            // The last page of the lower half of the address space is never mapped.
            assert_eq!(copy(0x7fff_ffff_f000, &mut seen), 0);
        }
    }
}
