//! [`File`]: an open file. A `File` never registers with the poller: a call that blocks is a marked
//! call, and blocks its thread.

use super::{FileTimes, Metadata, OpenOptions, Permissions, TryLockError};
use crate::block::call::{BlockingDrop, blocking};
use crate::block::io::by_reference::{read_by_reference, write_by_reference};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

/// An open file, like [`std::fs::File`]. The file is closed when the value is dropped.
///
/// Every method that makes a system call is a [marked call](crate::blocking), so other goroutines
/// run if it blocks. Several goroutines may use one file. Reads and writes at an explicit offset
/// are independent of each other; all other reads and writes share one position, as in std.
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
    /// Opens a file for reading.
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing. Creates the file if it does not exist, and truncates it if it
    /// does.
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file and opens it for reading and writing. Fails if the file already exists.
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// Returns new [`OpenOptions`], to open a file in other ways.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Reads bytes at `offset` and returns their number. Returns 0 at the end of the file. The
    /// file's position does not change.
    #[doc(alias = "pread")]
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.read_at(buffer, offset))
    }

    /// Reads bytes at `offset` until the buffer is full. Fails with
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the file ends first.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        blocking(|| self.0.read_exact_at(buffer, offset))
    }

    /// Writes bytes at `offset` and returns the number of bytes written. The file's position does
    /// not change.
    #[doc(alias = "pwrite")]
    #[inline]
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.write_at(buffer, offset))
    }

    /// Writes the whole buffer at `offset`.
    pub fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        blocking(|| self.0.write_all_at(buffer, offset))
    }

    /// Writes the contents and the metadata of the file to the disk, and waits until they are
    /// stored.
    #[doc(alias = "fsync")]
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.0.sync_all())
    }

    /// Like [`sync_all`](File::sync_all), but may leave out metadata that is not needed to read the
    /// contents.
    #[doc(alias = "fdatasync")]
    pub fn sync_data(&self) -> io::Result<()> {
        blocking(|| self.0.sync_data())
    }

    /// Truncates the file, or extends it with zeros, to `size` bytes. The file's position does not
    /// change.
    #[doc(alias = "ftruncate")]
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.0.set_len(size))
    }

    /// Returns the metadata of the file.
    #[doc(alias = "fstat")]
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Creates another descriptor for the same open file. Both share the position and the locks.
    #[doc(alias = "dup")]
    pub fn try_clone(&self) -> io::Result<File> {
        blocking(|| self.0.try_clone()).map(File::from)
    }

    /// Changes the permissions of the file.
    #[doc(alias = "fchmod")]
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.0.set_permissions(permissions))
    }

    /// Changes the timestamps of the file.
    #[doc(alias = "futimens")]
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        blocking(|| self.0.set_times(times))
    }

    /// Changes the modification time of the file.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        blocking(|| self.0.set_modified(time))
    }

    /// Acquires an exclusive lock on the file. Blocks until no other open file holds a lock on it.
    ///
    /// The lock belongs to the open file and is shared by its clones. It is released by
    /// [`unlock`](File::unlock), or when the last clone is closed.
    #[doc(alias = "flock")]
    pub fn lock(&self) -> io::Result<()> {
        blocking(|| self.0.lock())
    }

    /// Acquires a shared lock on the file. Blocks while another open file holds an exclusive lock
    /// on it.
    pub fn lock_shared(&self) -> io::Result<()> {
        blocking(|| self.0.lock_shared())
    }

    /// Acquires an exclusive lock if that is possible without blocking. Otherwise fails with
    /// [`TryLockError::WouldBlock`].
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        blocking(|| self.0.try_lock())
    }

    /// Acquires a shared lock if that is possible without blocking. Otherwise fails with
    /// [`TryLockError::WouldBlock`].
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        blocking(|| self.0.try_lock_shared())
    }

    /// Releases the lock.
    pub fn unlock(&self) -> io::Result<()> {
        blocking(|| self.0.unlock())
    }
}

/// Reads from the file's position. `read_to_end` and `read_to_string` are one marked call, however
/// many reads they need.
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

/// Writes at the file's position. Writes are not buffered, so `flush` does nothing.
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

read_by_reference!(File);
write_by_reference!(File);

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

/// The positioned reads and writes, for code that is generic over [`FileExt`].
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

/// Lets a child process use the file as its standard input, output or error.
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
