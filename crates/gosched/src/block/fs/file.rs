//! An open file.

use super::{FileTimes, Metadata, OpenOptions, Permissions, TryLockError};
use crate::block::call::{BlockingDrop, blocking};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

/// An open file: [`std::fs::File`], whose calls are marked. Closed when it is dropped.
///
/// Many goroutines may use one file. Those that read or write at a place of their own do not disturb each
/// other; the others share one position, as in std.
///
/// ```
/// use gosched::fs::File;
///
/// # fn main() -> std::io::Result<()> {
/// let zeros = File::open("/dev/zero")?;
/// let mut bytes = [1; 16];
/// zeros.read_exact_at(&mut bytes, 4096)?;
/// assert_eq!(bytes, [0; 16]);
/// # Ok(())
/// # }
/// ```
pub struct File(BlockingDrop<std::fs::File>);

impl File {
    /// Opens a file to read it.
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file to write it. What was in it is gone; if it was not there it is created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file that must not be there yet, to read and write it.
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// To open it in other ways.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Reads at `offset`, some bytes at least unless that is the end: how many. The position stays.
    #[doc(alias = "pread")]
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.read_at(buffer, offset))
    }

    /// Reads at `offset` until the buffer is full; an [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the
    /// file ends before.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        blocking(|| self.0.read_exact_at(buffer, offset))
    }

    /// Writes at `offset`, some bytes at least: how many. The position stays.
    #[doc(alias = "pwrite")]
    #[inline]
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.write_at(buffer, offset))
    }

    /// Writes all of the buffer at `offset`.
    pub fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        blocking(|| self.0.write_all_at(buffer, offset))
    }

    /// Returns when the contents and all that is known of the file are on its disk.
    #[doc(alias = "fsync")]
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.0.sync_all())
    }

    /// Returns when the contents are on its disk, and what is needed to find them.
    #[doc(alias = "fdatasync")]
    pub fn sync_data(&self) -> io::Result<()> {
        blocking(|| self.0.sync_data())
    }

    /// Makes it `size` bytes long: cut off, or zeros at its end. The position stays.
    #[doc(alias = "ftruncate")]
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.0.set_len(size))
    }

    /// What the system knows of it.
    #[doc(alias = "fstat")]
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Another descriptor of the same open file: position and locks are the same.
    #[doc(alias = "dup")]
    pub fn try_clone(&self) -> io::Result<File> {
        blocking(|| self.0.try_clone()).map(File::from)
    }

    /// Changes who may do what with it.
    #[doc(alias = "fchmod")]
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.0.set_permissions(permissions))
    }

    /// Changes when it was read and written last.
    #[doc(alias = "futimens")]
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        blocking(|| self.0.set_times(times))
    }

    /// Changes when it was written last.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        blocking(|| self.0.set_modified(time))
    }

    /// Waits until nobody else has a lock on the file, and takes it. Descriptors of the same open file have
    /// the same lock; it is gone with the last of them.
    #[doc(alias = "flock")]
    pub fn lock(&self) -> io::Result<()> {
        blocking(|| self.0.lock())
    }

    /// As [`lock`](File::lock), beside others that have it in this way.
    pub fn lock_shared(&self) -> io::Result<()> {
        blocking(|| self.0.lock_shared())
    }

    /// Takes the lock if nobody else has it.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        blocking(|| self.0.try_lock())
    }

    /// Takes the lock, beside others that have it in this way, if nobody has it alone.
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        blocking(|| self.0.try_lock_shared())
    }

    /// Gives the lock back.
    pub fn unlock(&self) -> io::Result<()> {
        blocking(|| self.0.unlock())
    }
}

/// Reads on from the position. To the end it is one marked call, however many reads that takes.
impl Read for &File {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        blocking(|| (&*self.0).read(buffer))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        blocking(|| (&*self.0).read_vectored(buffers))
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        blocking(|| (&*self.0).read_to_end(buffer))
    }

    fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
        blocking(|| (&*self.0).read_to_string(buffer))
    }
}

impl Read for File {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buffer)
    }

    fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buffer)
    }
}

/// Writes on from the position. Nothing is held back, so a flush does nothing.
impl Write for &File {
    #[inline]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        blocking(|| (&*self.0).write(buffer))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(|| (&*self.0).write_vectored(buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for File {
    #[inline]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        blocking(|| (&*self.0).seek(to))
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

/// For code that is written for any file; the methods are the file's own too.
impl FileExt for File {
    #[inline]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    #[inline]
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.write_at(buffer, offset)
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File(BlockingDrop::new(file))
    }
}

impl From<File> for std::fs::File {
    fn from(file: File) -> std::fs::File {
        file.0.into_value()
    }
}

impl From<OwnedFd> for File {
    fn from(descriptor: OwnedFd) -> File {
        File::from(std::fs::File::from(descriptor))
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.0.into_value().into()
    }
}

/// A child process may read or write it.
impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.0.into_value().into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.0.into_value().into_raw_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
