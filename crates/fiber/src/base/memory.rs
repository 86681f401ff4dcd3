//! Reading memory that others may change, or give back, meanwhile: by the kernel, which says how much there is.

/// Copies what is at `from` into `to`: how many bytes there were. A part of them may be older than others.
/// In signal handlers too; errno is not kept.
pub fn copy(from: usize, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: it has no precondition.
    let process = unsafe { libc::getpid() };
    // SAFETY: the buffer is the caller's; the kernel looks itself whether the rest is there.
    let copied = unsafe { libc::process_vm_readv(process, &local, 1, &remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) => copied,
        Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) => 0,
        // Some sandboxes do not have the call.
        Err(_) => copy_by_file(from, to),
    }
}

/// So many parts at most are copied by one call of the kernel.
pub const MAX_PARTS: usize = 64;

/// Copies parts of memory, each where it is and how long, into `to`, one behind the other. How many bytes: all of
/// the first parts, and none from the first on that is not there, or has no room. Quicker than [`copy`] for each.
/// Nothing where the call is not to be had.
pub fn copy_parts(parts: &[(usize, usize)], to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut remote = [nothing; MAX_PARTS];
    for (remote, &(from, len)) in remote.iter_mut().zip(parts) {
        *remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: len };
    }
    // SAFETY: it has no precondition.
    let process = unsafe { libc::getpid() };
    let count = parts.len().min(MAX_PARTS) as libc::c_ulong;
    // SAFETY: the buffer is the caller's; the kernel looks itself whether the rest is there.
    let copied = unsafe { libc::process_vm_readv(process, &local, 1, remote.as_ptr(), count, 0) };
    usize::try_from(copied).unwrap_or(0)
}

fn copy_by_file(from: usize, to: &mut [u8]) -> usize {
    // Opened each time: after a fork another's would be the parent's.
    // SAFETY: a path that ends in a zero byte.
    let file = unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: the buffer is the caller's.
    let copied = unsafe { libc::pread(file, to.as_mut_ptr().cast(), to.len(), from as i64) };
    // SAFETY: opened above; or no descriptor, which is an error code.
    unsafe { libc::close(file) };
    usize::try_from(copied).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_copied_up_to_the_first_that_is_not_there() {
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
    fn what_is_there_is_copied_and_nothing_else() {
        for copy in [copy, copy_by_file] {
            let words: Vec<u8> = (0..=255).collect();
            let mut seen = [0; 256];
            assert_eq!(copy(words.as_ptr() as usize, &mut seen), 256);
            assert_eq!(words, seen);
            assert_eq!(copy(16, &mut seen), 0);
            // The last page of the lower half of memory is never there.
            assert_eq!(copy(0x7fff_ffff_f000, &mut seen), 0);
        }
    }
}
