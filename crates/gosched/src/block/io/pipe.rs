//! Pipes, and what all ends of pipes have in common.

use super::names::*;

/// The end of a pipe that is read: [`std::io::PipeReader`], for goroutines.
pub struct PipeReader {
    pub(super) polled: Polled<std::io::PipeReader>,
}

/// The end of a pipe that is written: [`std::io::PipeWriter`], for goroutines.
pub struct PipeWriter {
    pub(super) polled: Polled<std::io::PipeWriter>,
}

/// A new pipe: what is written to the one end can be read from the other, in order.
///
/// It holds 64 KiB as a rule; a write waits for room. A read finds the end when all writers are dropped or
/// closed; a write fails with [`BrokenPipe`](io::ErrorKind::BrokenPipe) when all readers are.
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
/// The system refuses descriptors.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((PipeReader::from_std(reader)?, PipeWriter::from_std(writer)?))
}

/// What both ends have in common.
macro_rules! pipe_end {
    ($name:ident, $std:ty, $source:ty, $direction:expr) => {
        impl $name {
            /// Std's, from here on polled. It is put into non-blocking mode.
            ///
            /// # Errors
            /// It cannot be polled, or the system refuses.
            pub fn from_std(end: $std) -> io::Result<$name> {
                descriptor::set_nonblocking(&end, true)?;
                Ok($name { polled: Polled::new(<$source>::from(OwnedFd::from(end)))? })
            }

            /// Std's, in blocking mode.
            ///
            /// # Errors
            /// It was closed.
            pub fn into_std(self) -> io::Result<$std> {
                let end = self.polled.into_source()?;
                descriptor::set_nonblocking(&end, false)?;
                Ok(<$std>::from(OwnedFd::from(end)))
            }

            /// When calls fail from, with [`TimedOut`](io::ErrorKind::TimedOut), those that wait included.
            /// `None`: never. It stays until it is changed.
            ///
            /// # Errors
            /// It was closed.
            #[doc(alias = "SetDeadline")]
            pub fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.polled.set_deadline($direction, deadline)
            }
        }

        fd_api!($name, $std);

        /// For a child process.
        impl From<$name> for Stdio {
            /// # Panics
            /// It was closed.
            #[track_caller]
            fn from(end: $name) -> Stdio {
                match end.into_std() {
                    Ok(end) => Stdio::from(end),
                    Err(why) => panic!("no `Stdio` of a pipe that was closed: {why}"),
                }
            }
        }
    };
}

/// An end that is read.
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

        impl Read for $name {
            #[inline]
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(buffers)
            }
        }
    };
}

/// An end that is written.
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

reading_end!(PipeReader, std::io::PipeReader);
writing_end!(PipeWriter, std::io::PipeWriter);

impl PipeReader {
    /// Another handle of the same end, with a deadline and a `close` of its own.
    ///
    /// # Errors
    /// It was closed, or the system refuses a descriptor.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        PipeReader::from_std(self.polled.with(std::io::PipeReader::try_clone)?)
    }
}

impl PipeWriter {
    /// Another handle of the same end, with a deadline and a `close` of its own.
    ///
    /// # Errors
    /// It was closed, or the system refuses a descriptor.
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        PipeWriter::from_std(self.polled.with(std::io::PipeWriter::try_clone)?)
    }
}
