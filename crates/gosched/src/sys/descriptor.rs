//! What we ask of a descriptor, whatever it is.

use super::poller::{Direction, checked};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls that would block fail instead, or block again. It holds for all descriptors of the open file.
pub(crate) fn set_nonblocking(fd: &impl AsFd, nonblocking: bool) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: no memory is involved.
    let old = checked(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    let new = if nonblocking { old | libc::O_NONBLOCK } else { old & !libc::O_NONBLOCK };
    if new != old {
        // SAFETY: no memory is involved.
        checked(unsafe { libc::fcntl(fd, libc::F_SETFL, new) })?;
    }
    Ok(())
}

/// A descriptor that only stands for a place: it can be neither read nor written, nor changed.
pub(crate) fn inert() -> io::Result<OwnedFd> {
    // SAFETY: the path ends with a zero.
    let fd = checked(unsafe { libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) })?;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes what is behind `fd`, which is the caller's, and keeps the number, for what `other` is.
pub(crate) fn replace(fd: RawFd, other: BorrowedFd<'_>) {
    // SAFETY: no memory is involved.
    unsafe { libc::dup3(other.as_raw_fd(), fd, libc::O_CLOEXEC) };
}

/// Whether nothing can be received any more.
pub(crate) fn is_shut(socket: &impl AsFd) -> bool {
    let fd = socket.as_fd().as_raw_fd();
    let mut asked = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one record.
    unsafe { libc::poll(&raw mut asked, 1, 0) };
    asked.revents & libc::POLLRDHUP != 0
}

/// Whether a call in that direction would come back at once, be it with an error.
///
/// # Errors
/// `WouldBlock`: it would not; or the system refuses to say.
pub(crate) fn check_ready(fd: &impl AsFd, direction: Direction) -> io::Result<()> {
    let events = match direction {
        Direction::Read => libc::POLLIN,
        Direction::Write => libc::POLLOUT,
    };
    let mut asked = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events, revents: 0 };
    // SAFETY: one record.
    match checked(unsafe { libc::poll(&raw mut asked, 1, 0) })? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// What file is open there: device, number, and the device that it is, if it is one.
pub(crate) fn identity(fd: &impl AsFd) -> io::Result<(u64, u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one record.
    checked(unsafe { libc::fstat(fd.as_fd().as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    Ok((found.st_dev, found.st_ino, found.st_rdev))
}

/// A read that does not wait, whatever mode the descriptor is in.
///
/// # Errors
/// `Unsupported`: not of this kind of file, or not by this system.
pub(crate) fn read_now(fd: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    static KNOWN: AtomicBool = AtomicBool::new(true);
    now(&KNOWN, || {
        let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: one part, with room for as many bytes as it says.
        unsafe { libc::preadv2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT) }
    })
}

/// A write that does not wait, whatever mode the descriptor is in.
///
/// # Errors
/// As [`read_now`].
pub(crate) fn write_now(fd: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    static KNOWN: AtomicBool = AtomicBool::new(true);
    now(&KNOWN, || {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: one part, of as many bytes as it says, which are only read.
        unsafe { libc::pwritev2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT) }
    })
}

/// `known`: the system has not said yet that there is no such call.
fn now(known: &AtomicBool, call: impl FnOnce() -> libc::ssize_t) -> io::Result<usize> {
    if !known.load(Ordering::Relaxed) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    count(call()).map_err(|why| match why.raw_os_error() {
        Some(libc::ENOSYS) => {
            known.store(false, Ordering::Relaxed);
            io::ErrorKind::Unsupported.into()
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL) => io::ErrorKind::Unsupported.into(),
        _ => why,
    })
}

/// A plain read.
pub(crate) fn read(fd: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: room for as many bytes as it says.
    count(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) })
}

/// A plain write.
pub(crate) fn write(fd: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: as many bytes as it says.
    count(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

/// How many bytes a call has moved, or its error.
pub(super) fn count(moved: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// A descriptor of a child process of ours that was not waited for yet. It can be read when that has ended.
///
/// # Errors
/// The system has none (before Linux 5.3), or refuses; or `GOSCHED_PIDFD=off` says that it should.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    if std::env::var_os("GOSCHED_PIDFD").is_some_and(|switch| switch == "off") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = checked(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Blocks until a child process has ended, which it leaves to be waited for.
pub(crate) fn block_until_waitable(pid: u32) -> io::Result<()> {
    let mut ignored = MaybeUninit::<libc::siginfo_t>::uninit();
    let how = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: room for one record.
    checked(unsafe { libc::waitid(libc::P_PID, pid, ignored.as_mut_ptr(), how) }).map(drop)
}
