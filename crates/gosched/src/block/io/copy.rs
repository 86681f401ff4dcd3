//! From a reader to a writer, to the end.
//!
//! Between two that are [known](super::fast_copy) the system moves the bytes by itself: from file to file by
//! `copy_file_range`, from file to socket by `sendfile`, to and from pipes by `splice`. From sockets to what is
//! no pipe they go through a pipe that belongs to the copy: it is empty when bytes are taken in, and emptied
//! before more are, so a read that fails loses nothing. Where the system refuses, what is left goes the long
//! way, through memory.
//!
//! While one side is waited for, the other can be closed: nothing is held of it.

use super::fast_copy::{self, AnyPolled, CopyEnd};
use crate::block::call::blocking;
use crate::block::fs::File;
use crate::sys::poller::Direction;
use crate::sys::{descriptor, signals, transfer};
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, PipeReader, Read, Write};

/// How much is asked for at a time: more than pipes and sockets have at once, and of a file no more than can
/// be waited for where a deadline is over, or one side is closed.
const MAX_BYTES_PER_CALL: usize = 4 << 20;

/// How much is read at a time, the long way: Go's size.
const BUFFER_BYTES: usize = 32 << 10;

/// Copies all that `reader` has to `writer`, and returns how many bytes that were: [`std::io::copy`], for
/// goroutines.
///
/// It takes any reader and writer. Between those of this crate ([`TcpStream`](crate::net::TcpStream),
/// [`UnixStream`](crate::net::UnixStream), [`File`], the ends of [pipes](super::pipe()) and of pipes to
/// [child processes](crate::process)), and references to them, the bytes do not pass through the program: the
/// system moves them. Not so where they are wrapped, in a `BufReader` or a `dyn Read`.
///
/// Deadlines, time limits and `close` hold for each wait, as in reads and writes of one's own. At the end of
/// the reader nothing is shut down: that is the caller's to do.
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
/// The first one of either side, other than [`Interrupted`](ErrorKind::Interrupted). All that was read before
/// has been written then, or is in the error: where a write fails and something was read that is not
/// written yet, the error holds a [`CopyError`], of the same [kind](io::Error::kind). So a copy that failed, say,
/// by a deadline can go on.
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

/// What an error of [`copy`] holds if something was read that could not be written.
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
    /// Why the write failed.
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// How many bytes were written.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// What was read, and not written: it comes next.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// The same, to be kept.
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

/// What is left to be copied.
#[derive(Debug, PartialEq, Eq)]
enum KernelCopy {
    Finished,
    /// Something, perhaps, and the system refuses to do it.
    Refused,
}

/// How far it has got.
struct Progress {
    copied: u64,
    /// What was read, and has to be written next.
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

    /// Does `step` until there is no more, or the system refuses.
    fn repeat(&mut self, mut step: impl FnMut() -> io::Result<usize>) -> io::Result<KernelCopy> {
        loop {
            match step() {
                // Files that are made up by the system may have something even so.
                Ok(0) if self.copied == 0 => return Ok(KernelCopy::Refused),
                Ok(0) => return Ok(KernelCopy::Finished),
                Ok(count) => self.copied += count as u64,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if transfer::is_refused(&why) => return Ok(KernelCopy::Refused),
                Err(why) => return Err(why),
            }
        }
    }

    /// From a socket through a pipe of our own.
    fn splice_through_pipe(
        &mut self,
        from: &dyn AnyPolled,
        sink: CopyEnd<'_>,
    ) -> io::Result<KernelCopy> {
        // Before the pipe is made, which an idle connection does not need.
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

    /// A write failed, and this was not written.
    fn fail(&self, error: io::Error, unsent: &[u8]) -> io::Error {
        let unsent = unsent.to_vec();
        io::Error::new(error.kind(), CopyError { error, copied: self.copied, unsent })
    }
}

/// Whether the system can do it at all: a `File` may be anything, and wait where nothing can be waited for.
fn can_copy_in_kernel(side: CopyEnd<'_>) -> bool {
    match side {
        CopyEnd::File(file) => is_regular(file),
        CopyEnd::Pipe(_) | CopyEnd::Socket(_) => true,
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Whether writing to a socket that nobody reads would send a signal: the system's ways cannot be told not to,
/// as writes of sockets are. In a Rust program it is ignored, unless somebody has changed that.
fn can_raise_sigpipe(sink: CopyEnd<'_>) -> bool {
    matches!(sink, CopyEnd::Socket(_)) && !signals::is_ignored(libc::SIGPIPE)
}

/// From a pipe, or to one, both of which may have to be waited for.
fn splice_when_both_ready(from: &dyn AnyPolled, to: &dyn AnyPolled) -> io::Result<usize> {
    let mut false_alarms = 0;
    // Both may become ready just after they were tried, but not again and again.
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

/// Out of our pipe, in which there are `most` bytes.
fn splice_out(exit: &PipeReader, sink: CopyEnd<'_>, most: usize) -> io::Result<usize> {
    match sink {
        CopyEnd::File(file) => blocking(|| transfer::splice(exit, file, most)),
        CopyEnd::Socket(to) | CopyEnd::Pipe(to) => {
            to.wait(Direction::Write, &mut |to| transfer::splice(exit, &to, most))
        }
    }
}

/// What is in our pipe.
fn drain_pipe(mut exit: &PipeReader, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    match exit.read_exact(&mut bytes) {
        Ok(()) => bytes,
        Err(why) => unreachable!("{count} bytes were put into the pipe: {why}"),
    }
}
