//! Reads of a TCP socket that also report how many bytes remain to be read (`TCP_INQ`, Linux 4.18).
//! A reader that has read everything can wait at once, without first trying a read that fails with
//! `WouldBlock`.
//!
//! A socket is never reported as empty unless the kernel reports that no bytes remain.

use super::poller::checked;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// The number of the socket option, and the type of the control message that comes with a read.
const TCP_INQ: libc::c_int = 36;

/// Makes reads of this socket report the number of remaining bytes. Has no effect if the system
/// does not support the option.
pub(crate) fn enable(socket: &impl AsFd) {
    let on: libc::c_int = 1;
    let fd = socket.as_fd().as_raw_fd();
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `on` outlives the call and has `len` bytes.
    unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, TCP_INQ, (&raw const on).cast(), len) };
}

/// The buffer of the control message: a header and a number.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = 24;

/// Reads from the socket. Returns the number of bytes, and whether the socket is known to be empty
/// after that. `false` means that it may have more.
pub(crate) fn read(
    socket: &impl AsFd,
    buffer: &mut [MaybeUninit<u8>],
) -> io::Result<(usize, bool)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: all zeros is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES;
    // SAFETY: the message refers to the two buffers with their lengths, and both outlive the call.
    let count = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    if count < 0 {
        return checked(-1).map(|_| (0, false));
    }
    // SAFETY: the kernel has written the control buffer, and its length to the message.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: `header` is null or points to a header in the control buffer.
    let inq = unsafe { header.as_ref() }
        .filter(|header| header.cmsg_level == libc::IPPROTO_TCP && header.cmsg_type == TCP_INQ);
    let rest = inq.map(|_| {
        // SAFETY: a header of this type is followed by a number.
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<libc::c_int>();
        // SAFETY: as above.
        unsafe { data.read_unaligned() }
    });
    Ok((count.cast_unsigned(), rest == Some(0)))
}

/// Converts a buffer for [`read`].
pub(crate) fn as_uninit(buffer: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: both types have the same layout, and `read` writes only initialized bytes to the
    // buffer.
    unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) }
}
