//! [`copy`]: copies from a reader to a writer until the end.
//!
//! If both ends are [types of this crate](super::fast_copy), the kernel moves the bytes: with
//! `copy_file_range` from file to file, with `sendfile` from file to socket, with `splice` from and
//! to pipes. From a socket to a socket or a file, the bytes go through a pipe that belongs to the
//! copy. That pipe is emptied before more bytes are read into it, so a read that fails loses
//! nothing. If the kernel refuses, the rest is copied through memory.
//!
//! While the copy waits for one end, the other end can be closed: the copy does not count as one of
//! its users meanwhile.
//!
//! `copy` never closes, shuts down or flushes an end.

use super::fast_copy::{self, AnyPolled, CopyEnd};
use crate::block::call::blocking;
use crate::block::fs::File;
use crate::sys::poller::Direction;
use crate::sys::{descriptor, signals, transfer};
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, PipeReader, Read, Write};

/// Number of bytes requested per system call. More than a pipe or a socket holds at a time. For
/// files, small enough that a call ends soon after a deadline has passed or an end was closed.
const MAX_BYTES_PER_CALL: usize = 4 << 20;

/// Size of the buffer when the copy goes through memory: Go's size.
const BUFFER_BYTES: usize = 32 << 10;

/// Copies all bytes of `reader` to `writer` and returns their number: [`std::io::copy`], for
/// goroutines.
///
/// `copy` accepts any reader and writer. If both are types of this crate
/// ([`TcpStream`](crate::net::TcpStream), [`UnixStream`](crate::net::UnixStream), [`File`], the
/// ends of [pipes](super::pipe()) and of pipes to [child processes](crate::process)) or references
/// to such types, the kernel moves the bytes where it can, without copying them through the
/// program. Wrappers such as `BufReader` and `dyn Read` are not recognized: the bytes go through a
/// buffer.
///
/// Deadlines, time limits and `close` apply to each wait, as in separate reads and writes. When the
/// reader has ended, `copy` does not shut down the writer: that is up to the caller.
///
/// ```
/// use gosched::io;
/// use gosched::net::{Shutdown, UnixStream};
/// use std::io::{Read, Write};
///
/// # fn main() -> std::io::Result<()> {
/// let (mut client, mut server) = UnixStream::pair()?;
/// let echo = gosched::go(move || io::copy(&mut &server, &mut &server));
/// client.write_all(b"and back")?;
/// client.shutdown(Shutdown::Write)?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert_eq!(answer, "and back");
/// assert_eq!(echo.join().unwrap()?, 8);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The first error of a read or a write, other than [`Interrupted`](ErrorKind::Interrupted). No
/// byte is lost: everything that was read is either written or in the error. If a write fails while
/// bytes are read but not yet written, the error contains a [`CopyError`] with these bytes, and has
/// the same [kind](io::Error::kind) as the error of the write. So a copy that fails, for example
/// because of a deadline, can be continued.
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    let mut progress = Progress { copied: 0, rest: Vec::new() };
    if let (Some(source), Some(sink)) = (fast_copy::source(reader), fast_copy::sink(writer))
        && progress.copy_in_kernel(source, sink)? == KernelCopy::Finished
    {
        return Ok(progress.copied);
    }
    let rest = std::mem::take(&mut progress.rest);
    progress.write(&rest, writer)?;
    progress.copy_through_buffer(reader, writer)
}

/// The error of a [`copy`] that has read bytes which it could not write. Contained in the
/// [`io::Error`].
///
/// ```
/// use gosched::io::{self, CopyError};
/// use std::io::Cursor;
///
/// let mut room = [0; 4];
/// let error = io::copy(&mut &b"too much"[..], &mut Cursor::new(&mut room[..])).unwrap_err();
/// let error = error.downcast::<CopyError>().unwrap();
/// assert_eq!(error.copied(), 4);
/// assert_eq!(error.unsent(), b"much");
/// ```
#[derive(Debug)]
pub struct CopyError {
    error: io::Error,
    copied: u64,
    unsent: Vec<u8>,
}

impl CopyError {
    /// Returns the error of the write.
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// Returns the number of bytes that were written.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Returns the bytes that were read but not written. To continue the copy, write them first.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// Returns the bytes of [`unsent`](CopyError::unsent) as a vector.
    pub fn into_unsent(self) -> Vec<u8> {
        self.unsent
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for CopyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// The outcome of a copy in the kernel.
#[derive(Debug, PartialEq, Eq)]
enum KernelCopy {
    Finished,
    /// The kernel refuses to move the rest, if there is any.
    Refused,
}

/// The state of a copy.
struct Progress {
    copied: u64,
    /// Bytes that were read and must be written next.
    rest: Vec<u8>,
}

impl Progress {
    fn copy_in_kernel(&mut self, source: CopyEnd<'_>, sink: CopyEnd<'_>) -> io::Result<KernelCopy> {
        use CopyEnd::{File, Pipe, Socket};
        if !can_copy_in_kernel(source) || !can_copy_in_kernel(sink) || can_raise_sigpipe(sink) {
            return Ok(KernelCopy::Refused);
        }
        match (source, sink) {
            (File(from), File(to)) => {
                self.repeat(|| blocking(|| transfer::copy_file_range(from, to, MAX_BYTES_PER_CALL)))
            }
            (File(from), Socket(to)) => self.repeat(|| {
                to.wait(Direction::Write, &mut |to| {
                    blocking(|| transfer::sendfile(from, &to, MAX_BYTES_PER_CALL))
                })
            }),
            (File(from), Pipe(to)) => self.repeat(|| {
                to.wait(Direction::Write, &mut |to| {
                    blocking(|| transfer::splice(from, &to, MAX_BYTES_PER_CALL))
                })
            }),
            (Pipe(from), File(to)) => self.repeat(|| {
                from.wait(Direction::Read, &mut |from| {
                    blocking(|| transfer::splice(&from, to, MAX_BYTES_PER_CALL))
                })
            }),
            (Pipe(from), Pipe(to) | Socket(to)) | (Socket(from), Pipe(to)) => {
                self.repeat(|| splice_when_both_ready(from, to))
            }
            (Socket(from), Socket(_) | File(_)) => self.splice_through_pipe(from, sink),
        }
    }

    /// Runs `step` until the end of the source, or until the kernel refuses.
    fn repeat(&mut self, mut step: impl FnMut() -> io::Result<usize>) -> io::Result<KernelCopy> {
        loop {
            match step() {
                // Some generated files, such as those in `/proc`, have contents although the kernel
                // reports their end here.
                Ok(0) if self.copied == 0 => return Ok(KernelCopy::Refused),
                Ok(0) => return Ok(KernelCopy::Finished),
                Ok(count) => self.copied += count as u64,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if transfer::is_refused(&why) => return Ok(KernelCopy::Refused),
                Err(why) => return Err(why),
            }
        }
    }

    /// Copies from a socket through a pipe of the copy.
    fn splice_through_pipe(
        &mut self,
        from: &dyn AnyPolled,
        sink: CopyEnd<'_>,
    ) -> io::Result<KernelCopy> {
        // Waits before the pipe is created: an idle connection does not need one.
        from.wait(Direction::Read, &mut |from| {
            descriptor::check_ready(&from, Direction::Read).map(|()| 0)
        })?;
        let Ok((exit, entry)) = io::pipe() else { return Ok(KernelCopy::Refused) };
        loop {
            let taken = from.wait(Direction::Read, &mut |from| {
                transfer::splice(&from, &entry, MAX_BYTES_PER_CALL)
            });
            let mut inside = match taken {
                Ok(0) => return Ok(KernelCopy::Finished),
                Ok(count) => count,
                Err(why) if transfer::is_refused(&why) => return Ok(KernelCopy::Refused),
                Err(why) => return Err(why),
            };
            while inside > 0 {
                match splice_out(&exit, sink, inside) {
                    Ok(0) => {
                        return Err(
                            self.fail(ErrorKind::WriteZero.into(), &drain_pipe(&exit, inside))
                        );
                    }
                    Ok(count) => {
                        inside -= count;
                        self.copied += count as u64;
                    }
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    Err(why) if transfer::is_refused(&why) => {
                        self.rest = drain_pipe(&exit, inside);
                        return Ok(KernelCopy::Refused);
                    }
                    Err(why) => return Err(self.fail(why, &drain_pipe(&exit, inside))),
                }
            }
        }
    }

    fn copy_through_buffer<R, W>(&mut self, reader: &mut R, writer: &mut W) -> io::Result<u64>
    where
        R: Read + ?Sized,
        W: Write + ?Sized,
    {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(self.copied),
                Ok(count) => self.write(&buffer[..count], writer)?,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }

    fn write<W: Write + ?Sized>(&mut self, mut bytes: &[u8], writer: &mut W) -> io::Result<()> {
        while !bytes.is_empty() {
            match writer.write(bytes) {
                Ok(0) => return Err(self.fail(ErrorKind::WriteZero.into(), bytes)),
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.copied += count as u64;
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(self.fail(why, bytes)),
            }
        }
        Ok(())
    }

    /// Returns the error for a failed write that left `unsent` unwritten.
    fn fail(&self, error: io::Error, unsent: &[u8]) -> io::Error {
        let unsent = unsent.to_vec();
        io::Error::new(error.kind(), CopyError { error, copied: self.copied, unsent })
    }
}

/// Returns whether the kernel can copy from or to this end. A `File` must be a regular file: any
/// other kind may block, and is not polled.
fn can_copy_in_kernel(side: CopyEnd<'_>) -> bool {
    match side {
        CopyEnd::File(file) => is_regular(file),
        CopyEnd::Pipe(_) | CopyEnd::Socket(_) => true,
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Returns whether a write to a socket whose peer has closed it can raise `SIGPIPE`. `sendfile` and
/// `splice` have no flag that prevents the signal, as `send` has. Rust programs ignore the signal
/// unless they change that.
fn can_raise_sigpipe(sink: CopyEnd<'_>) -> bool {
    matches!(sink, CopyEnd::Socket(_)) && !signals::is_ignored(libc::SIGPIPE)
}

/// Moves bytes from a pipe or to a pipe. Waits until both ends are ready.
fn splice_when_both_ready(from: &dyn AnyPolled, to: &dyn AnyPolled) -> io::Result<usize> {
    let mut false_alarms = 0;
    // Both ends may become ready right after a failed attempt, but hardly ten times in a row. In
    // that case the function returns `EINVAL`, and the rest is copied through memory.
    while false_alarms < 10 {
        let moved = from.try_once(Direction::Read, &mut |from| {
            to.try_once(Direction::Write, &mut |to| {
                transfer::splice(&from, &to, MAX_BYTES_PER_CALL)
            })
        });
        match moved {
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            moved => return moved,
        }
        let mut looks = 0;
        from.wait(Direction::Read, &mut |from| {
            looks += 1;
            descriptor::check_ready(&from, Direction::Read).map(|()| 0)
        })?;
        to.wait(Direction::Write, &mut |to| {
            looks += 1;
            descriptor::check_ready(&to, Direction::Write).map(|()| 0)
        })?;
        false_alarms = if looks == 2 { false_alarms + 1 } else { 0 };
    }
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Moves bytes out of the pipe of the copy, which contains `most` bytes.
fn splice_out(exit: &PipeReader, sink: CopyEnd<'_>, most: usize) -> io::Result<usize> {
    match sink {
        CopyEnd::File(file) => blocking(|| transfer::splice(exit, file, most)),
        CopyEnd::Socket(to) | CopyEnd::Pipe(to) => {
            to.wait(Direction::Write, &mut |to| transfer::splice(exit, &to, most))
        }
    }
}

/// Reads the `count` bytes in the pipe of the copy.
fn drain_pipe(mut exit: &PipeReader, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    match exit.read_exact(&mut bytes) {
        Ok(()) => bytes,
        Err(why) => unreachable!(
            "cannot read the {count} bytes that this copy has put into its pipe: {why}"
        ),
    }
}
