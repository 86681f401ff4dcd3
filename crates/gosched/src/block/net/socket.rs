//! What all kinds of sockets have in common. This module never parks a goroutine: `Polled` does.

use crate::block::io::polled::Polled;
use crate::sys::poller::checked;
use socket2::SockAddr;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Implements the public methods that all sockets have, and the conversions from and to std's type.
macro_rules! common {
    ($name:ident, $std:ty) => {
        impl $name {
            /// Creates a socket from std's type. Puts the socket, and all its clones, into
            /// non-blocking mode.
            ///
            /// # Errors
            /// The socket cannot be polled, or the system refuses to register it.
            pub fn from_std(socket: $std) -> io::Result<$name> {
                socket.set_nonblocking(true)?;
                Ok($name::new(Polled::new(socket)?))
            }

            /// Converts into std's type. Puts the socket, and all its clones, into blocking mode.
            ///
            /// # Errors
            /// The socket was closed.
            pub fn into_std(self) -> io::Result<$std> {
                let socket = self.polled.into_source()?;
                socket.set_nonblocking(false)?;
                Ok(socket)
            }

            /// Creates another handle for the same socket. The clone has its own deadlines, time
            /// limits and `close`. It starts with the time limits of the original and no deadline.
            ///
            /// # Errors
            /// The socket was closed, or the system refuses to create a descriptor.
            pub fn try_clone(&self) -> io::Result<$name> {
                let clone = self.polled.with(<$std>::try_clone)?;
                let clone = $name::new(Polled::new(clone)?);
                for direction in [Direction::Read, Direction::Write] {
                    clone.polled.set_timeout(direction, self.polled.timeout(direction)?)?;
                }
                Ok(clone)
            }

            /// Returns the pending error of the socket (`SO_ERROR`), if any, and clears it.
            ///
            /// # Errors
            /// The socket was closed.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.polled.with(<$std>::take_error)
            }

            /// Sets the deadline of all calls that read, write or accept, including calls that
            /// already wait. Once the deadline has passed, these calls fail with
            /// [`TimedOut`](io::ErrorKind::TimedOut) until it is changed. `None` removes the
            /// deadline.
            ///
            /// # Errors
            /// The socket was closed.
            #[doc(alias = "SetDeadline")]
            pub fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.set_read_deadline(deadline)?;
                self.set_write_deadline(deadline)
            }

            /// Sets the deadline like [`set_deadline`](Self::set_deadline), only for calls that
            /// read or accept.
            ///
            /// # Errors
            /// The socket was closed.
            pub fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.polled.set_deadline(Direction::Read, deadline)
            }

            /// Sets the deadline like [`set_deadline`](Self::set_deadline), only for calls that
            /// write.
            ///
            /// # Errors
            /// The socket was closed.
            pub fn set_write_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.polled.set_deadline(Direction::Write, deadline)
            }
        }

        fd_api!($name, $std);
    };
}

/// Implements time limits for each call, as in std.
macro_rules! timeouts {
    ($name:ident) => {
        impl $name {
            /// Sets the time limit of each call that reads. When the time is over, the call fails
            /// with [`WouldBlock`](io::ErrorKind::WouldBlock). `None` removes the limit.
            ///
            /// # Errors
            /// The time limit is zero, or the socket was closed.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.polled.set_timeout(Direction::Read, timeout)
            }

            /// Sets the time limit of each call that writes. When the time is over, the call fails
            /// with [`WouldBlock`](io::ErrorKind::WouldBlock). `None` removes the limit.
            ///
            /// # Errors
            /// The time limit is zero, or the socket was closed.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.polled.set_timeout(Direction::Write, timeout)
            }

            /// Returns the time limit of calls that read: see
            /// [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            /// The socket was closed.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.polled.timeout(Direction::Read)
            }

            /// Returns the time limit of calls that write: see
            /// [`set_write_timeout`](Self::set_write_timeout).
            ///
            /// # Errors
            /// The socket was closed.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.polled.timeout(Direction::Write)
            }
        }
    };
}

/// Implements `Read` and `Write` for the socket and for references to it.
macro_rules! stream {
    ($name:ident) => {
        impl Read for &$name {
            #[inline]
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.read_some(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.polled.read(|mut socket| socket.read_vectored(buffers))
            }
        }

        impl Write for &$name {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.polled.write(|mut socket| socket.write(bytes))
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                self.polled.write(|socket| socket::write_vectored(socket, parts))
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        crate::block::io::by_reference::read_by_reference!($name);
        crate::block::io::by_reference::write_by_reference!($name);
    };
}

/// Writes like writev(2), but without raising `SIGPIPE` if the peer has closed the connection.
pub(crate) fn write_vectored(socket: &impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let socket = socket2::SockRef::from(socket);
    // The system accepts at most this many parts (`IOV_MAX`).
    let parts = &parts[..parts.len().min(1024)];
    socket.send_vectored_with_flags(parts, libc::MSG_NOSIGNAL)
}

/// Sets the backlog of a listener to the maximum that the system allows.
///
/// The backlog of std is small. If one goroutine connects while another accepts, the queue is full
/// before the accepting goroutine runs, and the system then delays the next connection by a second.
pub(super) fn raise_backlog(listener: &impl AsFd) -> io::Result<()> {
    socket2::SockRef::from(listener).listen(i32::from(u16::MAX))
}

/// Pauses of `accept` when there are no descriptors left: those of Go's HTTP server.
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(5);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Accepts the next connection by calling `now`, which does not wait.
///
/// Connections that were aborted before they were accepted are skipped. If there are no descriptors
/// left, `accept` pauses and then tries once more, so that a loop around it does not spin; if that
/// fails too, it returns the error. `backoff_millis` is the length of the last such pause, and
/// belongs to the listener: it doubles with each failure, up to `MAX_ACCEPT_BACKOFF`, and a success
/// resets it.
pub(super) fn accept<S: AsFd, T>(
    polled: &Polled<S>,
    backoff_millis: &AtomicU32,
    now: fn(&S) -> io::Result<T>,
) -> io::Result<T> {
    let try_now = |listener: &S| loop {
        match now(listener) {
            Err(why) if why.kind() == ErrorKind::ConnectionAborted => {}
            done => return done,
        }
    };
    let first = polled.read(try_now);
    let accepted = match first {
        Err(why) if is_exhausted(&why) => {
            let before = Duration::from_millis(backoff_millis.load(Ordering::Relaxed).into());
            let longer = (2 * before).clamp(MIN_ACCEPT_BACKOFF, MAX_ACCEPT_BACKOFF);
            backoff_millis.store(longer.as_millis() as u32, Ordering::Relaxed);
            polled.pause(longer)?;
            polled.read(try_now)
        }
        first => first,
    };
    if accepted.is_ok() && backoff_millis.load(Ordering::Relaxed) != 0 {
        backoff_millis.store(0, Ordering::Relaxed);
    }
    accepted
}

fn is_exhausted(why: &io::Error) -> bool {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    why.raw_os_error().is_some_and(|code| exhausted.contains(&code))
}

/// Accepts a connection without waiting. Returns its socket, in non-blocking mode, and the address
/// of the peer.
pub(super) fn accept_polled<S: AsFd>(listener: &S) -> io::Result<(OwnedFd, SockAddr)> {
    let fd = listener.as_fd().as_raw_fd();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let accept = |address: *mut socket2::SockAddrStorage, len: *mut libc::socklen_t| {
        // SAFETY: `address` has room for an address of any kind, and `len` for its length.
        checked(unsafe { libc::accept4(fd, address.cast(), len, flags) })
    };
    // SAFETY: accept4 writes the address and its length, or fails.
    let (new, address) = unsafe { SockAddr::try_init(accept) }?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok((unsafe { OwnedFd::from_raw_fd(new) }, address))
}

/// Returns the error for an address of another family than the socket's. Its kind is that of std.
pub(super) fn bad_address() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "the peer's address is neither IPv4 nor IPv6")
}

// The names that the macros above use.
pub(super) mod names {
    pub(in crate::block::net) use crate::block::io::polled::Polled;
    pub(in crate::block::net) use crate::sys::poller::Direction;
    pub(in crate::block::net) use std::fmt;
    pub(in crate::block::net) use std::io::{self, IoSlice, IoSliceMut, Read, Write};
    pub(in crate::block::net) use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
    pub(in crate::block::net) use std::time::{Duration, Instant};
}
