//! Listing and creating directories. A directory is never closed outside a marked call:
//! `BlockingDrop` marks the close.

use super::{FileType, Metadata};
use crate::block::call::{BlockingDrop, blocking};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

/// Returns an iterator over the entries of a directory, in no particular order.
///
/// The entries `.` and `..` are skipped.
#[doc(alias = "ReadDir")]
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref();
    blocking(|| std::fs::read_dir(path)).map(|entries| ReadDir(BlockingDrop::new(entries)))
}

/// Iterator over the entries of a directory, returned by [`read_dir`].
///
/// Entries are read from the system in batches. Each call of `next` may block for the next batch.
pub struct ReadDir(BlockingDrop<std::fs::ReadDir>);

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        let entry = blocking(|| self.0.next())?;
        Some(entry.map(|entry| DirEntry(BlockingDrop::new(entry))))
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An entry of a directory, returned by [`ReadDir`].
///
/// The directory stays open as long as the entry exists.
pub struct DirEntry(BlockingDrop<std::fs::DirEntry>);

impl DirEntry {
    /// Returns the path of the entry: the path that was passed to [`read_dir`], joined with the
    /// entry's file name.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Returns the file name of the entry, without its directory.
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// Returns the metadata of the entry. Does not follow a symbolic link.
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Returns the type of the entry: file, directory, symbolic link or other. Does not follow a
    /// symbolic link.
    ///
    /// Most file systems return the type together with the entry; otherwise this makes a system
    /// call.
    pub fn file_type(&self) -> io::Result<FileType> {
        blocking(|| self.0.file_type())
    }

    /// Returns the inode number of the entry.
    pub fn ino(&self) -> u64 {
        self.0.ino()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Options for creating a directory, like [`std::fs::DirBuilder`].
#[derive(Debug)]
pub struct DirBuilder(std::fs::DirBuilder);

impl DirBuilder {
    /// Creates options with the defaults: not recursive, permissions 0o777 without the bits of the
    /// process's `umask`.
    #[expect(clippy::new_without_default, reason = "as in std")]
    pub fn new() -> DirBuilder {
        DirBuilder(std::fs::DirBuilder::new())
    }

    /// Sets whether missing parent directories are created too. If so, a directory that already
    /// exists is not an error.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// Sets the permissions of new directories. The bits of the process's `umask` are cleared.
    pub fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }

    /// Creates the directory.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        blocking(|| self.0.create(path))
    }
}
