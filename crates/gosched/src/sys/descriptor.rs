//! Operations on descriptors of any kind. These functions never park a goroutine: a call that
//! cannot proceed returns `WouldBlock`, or blocks the thread.

use super::poller::{Direction, checked};
use gosched_fiber::base::environment;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets or clears non-blocking mode. The mode belongs to the open file, so it applies to all
/// descriptors of that file.
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

/// Opens a placeholder: a descriptor that can be neither read, written nor changed.
pub(crate) fn inert() -> io::Result<OwnedFd> {
    // SAFETY: the path ends with a zero byte.
    let fd = checked(unsafe { libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes the file behind `fd`, and makes `fd` a duplicate of `other`, so that the number stays in
/// use. The caller owns `fd`.
pub(crate) fn replace(fd: RawFd, other: BorrowedFd<'_>) {
    // SAFETY: no memory is involved.
    unsafe { libc::dup3(other.as_raw_fd(), fd, libc::O_CLOEXEC) };
}

/// Returns whether the receiving direction of the socket is shut down.
pub(crate) fn is_shut(socket: &impl AsFd) -> bool {
    let fd = socket.as_fd().as_raw_fd();
    let mut asked = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `asked` is one record.
    unsafe { libc::poll(&raw mut asked, 1, 0) };
    asked.revents & libc::POLLRDHUP != 0
}

/// Checks that a call in this direction would not block. The call may still fail.
///
/// # Errors
/// The call would block (`WouldBlock`), or the system refuses to poll the descriptor.
pub(crate) fn check_ready(fd: &impl AsFd, direction: Direction) -> io::Result<()> {
    let events = match direction {
        Direction::Read => libc::POLLIN,
        Direction::Write => libc::POLLOUT,
    };
    let mut asked = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events, revents: 0 };
    // SAFETY: `asked` is one record.
    match checked(unsafe { libc::poll(&raw mut asked, 1, 0) })? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Returns what identifies the open file: its device, its inode number, and, if the file is itself
/// a device, the number of that device.
pub(crate) fn identity(fd: &impl AsFd) -> io::Result<(u64, u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `found` has room for one record.
    checked(unsafe { libc::fstat(fd.as_fd().as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: the call has filled `found`.
    let found = unsafe { found.assume_init() };
    Ok((found.st_dev, found.st_ino, found.st_rdev))
}

/// Reads without blocking, even if the descriptor is in blocking mode.
///
/// # Errors
/// There is nothing to read (`WouldBlock`), or the system does not support such reads, at least not
/// of this kind of file (`Unsupported`).
pub(crate) fn read_now(fd: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    static KNOWN: AtomicBool = AtomicBool::new(true);
    now(&KNOWN, || {
        let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: `part` is one buffer with room for as many bytes as its length.
        unsafe { libc::preadv2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT) }
    })
}

/// Writes without blocking, even if the descriptor is in blocking mode.
///
/// # Errors
/// The write would block (`WouldBlock`), or the system does not support such writes, at least not
/// to this kind of file (`Unsupported`).
pub(crate) fn write_now(fd: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    static KNOWN: AtomicBool = AtomicBool::new(true);
    now(&KNOWN, || {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: `part` is one buffer with as many bytes as its length, which are only read.
        unsafe { libc::pwritev2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT) }
    })
}

/// Makes the system call `call`, and reports a lack of support as `Unsupported`. `known` becomes
/// `false` once the system has reported that it has no such system call; from then on `call` is
/// skipped.
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

/// Reads once, as read(2) does.
pub(crate) fn read(fd: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `buffer` has room for as many bytes as its length.
    count(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) })
}

/// Writes once, as write(2) does.
pub(crate) fn write(fd: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `bytes` has as many bytes as its length.
    count(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

/// Returns the number of bytes that a system call has moved, or the error in errno if the number is
/// negative.
pub(super) fn count(moved: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Opens a descriptor for a child process, which becomes readable when the child has ended. The
/// child must not have been waited for.
///
/// # Errors
/// The system does not support it (before Linux 5.3) or refuses, or `GOSCHED_PIDFD=off` disables
/// it.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    if environment::PIDFD.is("off") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = checked(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Blocks until a child process has ended. Does not reap the child.
pub(crate) fn block_until_waitable(pid: u32) -> io::Result<()> {
    let mut ignored = MaybeUninit::<libc::siginfo_t>::uninit();
    let how = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: `ignored` has room for one record.
    checked(unsafe { libc::waitid(libc::P_PID, pid, ignored.as_mut_ptr(), how) }).map(drop)
}
