//! System calls that move bytes from one descriptor to another inside the kernel.
//!
//! Each function moves as many bytes as it can in one call, at most `most`, and returns their
//! number; 0 means the end of the input. Files are read and written at their current position.
//!
//! A function never repeats its call, and never falls back to `read` and `write`:
//! `block/io/copy.rs` does.

use super::descriptor::count;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Moves bytes from or to a pipe. Never blocks on the pipe. Blocks on the descriptor that is not
/// the pipe if that descriptor is in blocking mode.
pub(crate) fn splice(from: &impl AsFd, to: &impl AsFd, most: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: no memory is involved.
    count(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), most, flags) })
}

/// Moves bytes from a file to a descriptor of any kind.
pub(crate) fn sendfile(from: &impl AsFd, to: &impl AsFd, most: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    // SAFETY: no memory is involved.
    count(unsafe { libc::sendfile(to, from, ptr::null_mut(), most) })
}

/// Moves bytes from a file to a file.
pub(crate) fn copy_file_range(from: &impl AsFd, to: &impl AsFd, most: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    let here = ptr::null_mut();
    // SAFETY: no memory is involved.
    count(unsafe { libc::copy_file_range(from, here, to, here, most, 0) })
}

/// Returns whether the error means that the system cannot move bytes between these descriptors.
pub(crate) fn is_refused(why: &io::Error) -> bool {
    let refusals = [
        libc::EINVAL,
        libc::ENOSYS,
        libc::EOPNOTSUPP,
        libc::EXDEV,
        libc::EPERM,
        libc::EBADF,
        libc::EOVERFLOW,
        libc::ESPIPE,
    ];
    why.raw_os_error().is_some_and(|code| refusals.contains(&code))
}
