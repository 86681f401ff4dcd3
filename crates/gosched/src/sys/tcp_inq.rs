//! How much more there is to read, told with each read of TCP (Linux 4.18): a reader that has all of it waits
//! without trying once more.

use super::poller::checked;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// The option, and what comes with a read.
const TCP_INQ: libc::c_int = 36;

/// Has reads of this socket tell. Where the system does not know that, they do not.
pub(crate) fn enable(socket: &impl AsFd) {
    let on: libc::c_int = 1;
    let fd = socket.as_fd().as_raw_fd();
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value lives during the call, and is as long as it says.
    unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, TCP_INQ, (&raw const on).cast(), len) };
}

/// What comes with a read: a header and a number.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = 24;

/// Reads, and says whether there was no more then. Not: perhaps there is.
pub(crate) fn read(
    socket: &impl AsFd,
    buffer: &mut [MaybeUninit<u8>],
) -> io::Result<(usize, bool)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: all zero is a valid message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES;
    // SAFETY: the message names the two buffers, with their lengths, and they live during the call.
    let count = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    if count < 0 {
        return checked(-1).map(|_| (0, false));
    }
    // SAFETY: the system has written the control buffer, whose length is in the message.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: null, or a header in the control buffer.
    let inq = unsafe { header.as_ref() }
        .filter(|header| header.cmsg_level == libc::IPPROTO_TCP && header.cmsg_type == TCP_INQ);
    let rest = inq.map(|_| {
        // SAFETY: such a header is followed by a number.
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<libc::c_int>();
        // SAFETY: as above.
        unsafe { data.read_unaligned() }
    });
    Ok((count.cast_unsigned(), rest == Some(0)))
}

/// The buffer of a read.
pub(crate) fn as_uninit(buffer: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: of the same layout, and those who get it only write bytes there.
    unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) }
}
