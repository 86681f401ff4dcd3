//! Pipes, and the macros that implement all kinds of pipe ends. A pipe end never buffers bytes in
//! the program: each call reads or writes the descriptor.

use super::names::*;

/// The reading end of a pipe, like [`std::io::PipeReader`]. Created by [`pipe()`].
pub struct PipeReader {
    pub(super) polled: Polled<std::io::PipeReader>,
}

/// The writing end of a pipe, like [`std::io::PipeWriter`]. Created by [`pipe()`].
pub struct PipeWriter {
    pub(super) polled: Polled<std::io::PipeWriter>,
}

/// Creates a pipe. The bytes that are written to the writer can be read from the reader, in order.
///
/// A pipe usually holds 64 KiB; a write blocks while the pipe is full. A read returns 0 once all
/// writers are dropped or closed and the pipe is empty. A write fails with
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe) once all readers are dropped or closed.
///
/// ```
/// use gosched::io::pipe;
/// use std::io::{ErrorKind, Read};
/// use std::time::Instant;
///
/// # fn main() -> std::io::Result<()> {
/// let (mut reader, _writer) = pipe()?;
/// reader.set_deadline(Some(Instant::now()))?;
/// let error = reader.read(&mut [0; 16]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::TimedOut);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The system refuses to create the descriptors.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((PipeReader::from_std(reader)?, PipeWriter::from_std(writer)?))
}

/// Implements what both ends have in common.
macro_rules! pipe_end {
    ($name:ident, $std:ty, $source:ty, $direction:expr) => {
        impl $name {
            /// Creates a pipe end from std's type. Puts the descriptor, and all its clones, into
            /// non-blocking mode.
            ///
            /// # Errors
            /// The descriptor cannot be polled, or the system refuses to register it.
            pub fn from_std(end: $std) -> io::Result<$name> {
                descriptor::set_nonblocking(&end, true)?;
                Ok($name { polled: Polled::new(<$source>::from(OwnedFd::from(end)))? })
            }

            /// Converts into std's type. Puts the descriptor, and all its clones, into blocking
            /// mode.
            ///
            /// # Errors
            /// The pipe end was closed.
            pub fn into_std(self) -> io::Result<$std> {
                let end = self.polled.into_source()?;
                descriptor::set_nonblocking(&end, false)?;
                Ok(<$std>::from(OwnedFd::from(end)))
            }

            /// Sets the deadline of all calls, including calls that already wait. Once the deadline
            /// has passed, calls fail with [`TimedOut`](io::ErrorKind::TimedOut) until it is
            /// changed. `None` removes the deadline.
            ///
            /// # Errors
            /// The pipe end was closed.
            #[doc(alias = "SetDeadline")]
            pub fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.polled.set_deadline($direction, deadline)
            }
        }

        fd_api!($name, $std);

        /// Lets a child process use the pipe as its standard input, output or error.
        impl From<$name> for Stdio {
            /// # Panics
            /// The pipe end was closed. Convert it before it is closed.
            #[track_caller]
            fn from(end: $name) -> Stdio {
                match end.into_std() {
                    Ok(end) => Stdio::from(end),
                    Err(why) => panic!("cannot convert a closed pipe end into a `Stdio`: {why}"),
                }
            }
        }
    };
}

/// Implements a reading end.
macro_rules! reading_end {
    ($name:ident, $std:ty) => {
        pipe_end!($name, $std, std::io::PipeReader, Direction::Read);

        impl Read for &$name {
            #[inline]
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.polled.read(|mut pipe| pipe.read(buffer))
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.polled.read(|mut pipe| pipe.read_vectored(buffers))
            }
        }

        crate::block::io::by_reference::read_by_reference!($name);
    };
}

/// Implements a writing end.
macro_rules! writing_end {
    ($name:ident, $std:ty) => {
        pipe_end!($name, $std, std::io::PipeWriter, Direction::Write);

        impl Write for &$name {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.polled.write(|mut pipe| pipe.write(bytes))
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                self.polled.write(|mut pipe| pipe.write_vectored(parts))
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        crate::block::io::by_reference::write_by_reference!($name);
    };
}

reading_end!(PipeReader, std::io::PipeReader);
writing_end!(PipeWriter, std::io::PipeWriter);

impl PipeReader {
    /// Creates another handle for this end of the pipe. The clone has its own deadline and its own
    /// `close`.
    ///
    /// # Errors
    /// The pipe end was closed, or the system refuses to create a descriptor.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        PipeReader::from_std(self.polled.with(std::io::PipeReader::try_clone)?)
    }
}

impl PipeWriter {
    /// Creates another handle for this end of the pipe. The clone has its own deadline and its own
    /// `close`.
    ///
    /// # Errors
    /// The pipe end was closed, or the system refuses to create a descriptor.
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        PipeWriter::from_std(self.polled.with(std::io::PipeWriter::try_clone)?)
    }
}
