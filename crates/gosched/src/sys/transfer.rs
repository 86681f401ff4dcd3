//! Bytes from one descriptor to another that the system moves by itself.
//!
//! Each of these moves what it can at once, at most `most` bytes, and says how many; 0 is the end. Files are
//! read and written at their position.

use super::descriptor::count;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// One of the two is a pipe. Does not wait for a pipe; for the other one as its mode says.
pub(crate) fn splice(from: &impl AsFd, to: &impl AsFd, most: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: no memory is involved.
    count(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), most, flags) })
}

/// From a file.
pub(crate) fn sendfile(from: &impl AsFd, to: &impl AsFd, most: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    // SAFETY: no memory is involved.
    count(unsafe { libc::sendfile(to, from, ptr::null_mut(), most) })
}

/// From a file to a file.
pub(crate) fn copy_file_range(from: &impl AsFd, to: &impl AsFd, most: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    let here = ptr::null_mut();
    // SAFETY: no memory is involved.
    count(unsafe { libc::copy_file_range(from, here, to, here, most, 0) })
}

/// Whether the system says that it does not do this between these two.
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
