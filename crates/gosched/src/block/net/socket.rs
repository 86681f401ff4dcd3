//! What all kinds of sockets have in common.

use crate::block::io::polled::Polled;
use crate::sys::poller::checked;
use socket2::SockAddr;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What [`Polled`] does under the names that users know, and the ways from and to std's type.
macro_rules! common {
    ($name:ident, $std:ty) => {
        impl $name {
            /// Std's socket, from here on polled. It is put into non-blocking mode, together with its clones.
            ///
            /// # Errors
            /// It cannot be polled, or the system refuses.
            pub fn from_std(socket: $std) -> io::Result<$name> {
                socket.set_nonblocking(true)?;
                Ok($name::new(Polled::new(socket)?))
            }

            /// Std's socket, in blocking mode, together with its clones.
            ///
            /// # Errors
            /// It was closed.
            pub fn into_std(self) -> io::Result<$std> {
                let socket = self.polled.into_source()?;
                socket.set_nonblocking(false)?;
                Ok(socket)
            }

            /// Another handle of the same socket, with deadlines and a `close` of its own.
            ///
            /// # Errors
            /// It was closed, or the system refuses a descriptor.
            pub fn try_clone(&self) -> io::Result<$name> {
                let clone = self.polled.with(<$std>::try_clone)?;
                let clone = $name::new(Polled::new(clone)?);
                for direction in [Direction::Read, Direction::Write] {
                    clone.polled.set_timeout(direction, self.polled.timeout(direction)?)?;
                }
                Ok(clone)
            }

            /// The error that the system has noted for the socket, if any; it is forgotten by that.
            ///
            /// # Errors
            /// It was closed.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.polled.with(<$std>::take_error)
            }

            /// When calls fail from, those that wait included. `None`: never.
            ///
            /// # Errors
            /// It was closed.
            #[doc(alias = "SetDeadline")]
            pub fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.set_read_deadline(deadline)?;
                self.set_write_deadline(deadline)
            }

            /// As [`set_deadline`](Self::set_deadline), for calls that read or accept.
            ///
            /// # Errors
            /// It was closed.
            pub fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.polled.set_deadline(Direction::Read, deadline)
            }

            /// As [`set_deadline`](Self::set_deadline), for calls that write.
            ///
            /// # Errors
            /// It was closed.
            pub fn set_write_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.polled.set_deadline(Direction::Write, deadline)
            }
        }

        fd_api!($name, $std);
    };
}

/// Time limits of each call, as std has them.
macro_rules! timeouts {
    ($name:ident) => {
        impl $name {
            /// How long each call that reads may take; then it fails with `WouldBlock`.
            ///
            /// # Errors
            /// It is zero, or the socket was closed.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.polled.set_timeout(Direction::Read, timeout)
            }

            /// How long each call that writes may take; then it fails with `WouldBlock`.
            ///
            /// # Errors
            /// It is zero, or the socket was closed.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.polled.set_timeout(Direction::Write, timeout)
            }

            /// See [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            /// The socket was closed.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.polled.timeout(Direction::Read)
            }

            /// See [`set_write_timeout`](Self::set_write_timeout).
            ///
            /// # Errors
            /// The socket was closed.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.polled.timeout(Direction::Write)
            }
        }
    };
}

/// `Read` and `Write`, also for those who only have a reference.
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

        impl Read for $name {
            #[inline]
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(buffers)
            }
        }

        impl Write for $name {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                (&*self).write(bytes)
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(parts)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

/// As writev, without a signal where nobody reads any more.
pub(crate) fn write_vectored(socket: &impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let socket = socket2::SockRef::from(socket);
    // The system takes no more at a time.
    let parts = &parts[..parts.len().min(1024)];
    socket.send_vectored_with_flags(parts, libc::MSG_NOSIGNAL)
}

/// Lets a listener have as many connections in its queue as the system allows. (Std's number is small: where
/// one goroutine connects and another accepts, they fill the queue before the other one runs, and then wait
/// for a second.)
pub(super) fn raise_backlog(listener: &impl AsFd) -> io::Result<()> {
    socket2::SockRef::from(listener).listen(i32::from(u16::MAX))
}

/// How long a listener rests when there are no descriptors: Go's server's times.
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(5);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// The next connection, and whose it is.
///
/// A connection that was given up before it was accepted is not spoken of. Where there are no descriptors
/// left, the call rests before it tries once more and says so: those who try again and again do not keep a
/// CPU busy. `backoff_millis` is how long, and belongs to the listener.
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

/// The next connection, in non-blocking mode, and whose it is.
pub(super) fn accept_polled<S: AsFd>(listener: &S) -> io::Result<(OwnedFd, SockAddr)> {
    let fd = listener.as_fd().as_raw_fd();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let accept = |address: *mut socket2::SockAddrStorage, len: *mut libc::socklen_t| {
        // SAFETY: room for an address of any kind, and its length.
        checked(unsafe { libc::accept4(fd, address.cast(), len, flags) })
    };
    // SAFETY: accept4 writes the address and its length, or fails.
    let (new, address) = unsafe { SockAddr::try_init(accept) }?;
    // SAFETY: just opened, and nobody else's.
    Ok((unsafe { OwnedFd::from_raw_fd(new) }, address))
}

/// As std says it where an address is of another kind than the socket.
pub(super) fn bad_address() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "an address of another kind of socket")
}

// What the macros above name.
pub(super) mod names {
    pub(in crate::block::net) use crate::block::io::polled::Polled;
    pub(in crate::block::net) use crate::sys::poller::Direction;
    pub(in crate::block::net) use std::fmt;
    pub(in crate::block::net) use std::io::{self, IoSlice, IoSliceMut, Read, Write};
    pub(in crate::block::net) use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
    pub(in crate::block::net) use std::time::{Duration, Instant};
}
