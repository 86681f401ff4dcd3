//! Directories: what is in them, and new ones.

use super::{FileType, Metadata};
use crate::block::call::{BlockingDrop, blocking};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

/// What is in a directory, in no order; `.` and `..` are left out.
#[doc(alias = "ReadDir")]
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref();
    blocking(|| std::fs::read_dir(path)).map(|entries| ReadDir(BlockingDrop::new(entries)))
}

/// The entries of a directory, one after the other: [`read_dir`] gives it.
///
/// The system is asked for many at a time; each `next` may be the one that asks.
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

/// One entry of a directory. While it lives the directory stays open.
pub struct DirEntry(BlockingDrop<std::fs::DirEntry>);

impl DirEntry {
    /// The directory's path as it was given, and this entry's name.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Its name in the directory.
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// What the system knows of it; of a symbolic link itself.
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Whether it is a file, a directory, a symbolic link or something else. Most file systems have said so
    /// already; others are asked.
    pub fn file_type(&self) -> io::Result<FileType> {
        blocking(|| self.0.file_type())
    }

    /// The number of its inode.
    pub fn ino(&self) -> u64 {
        self.0.ino()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a directory is created: [`std::fs::DirBuilder`].
#[derive(Debug)]
pub struct DirBuilder(std::fs::DirBuilder);

impl DirBuilder {
    /// One directory, with the permissions 0o777 less the process's `umask`.
    #[expect(clippy::new_without_default, reason = "as std's")]
    pub fn new() -> DirBuilder {
        DirBuilder(std::fs::DirBuilder::new())
    }

    /// Whether those above it that are missing are created too; then one that is there is no error.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// The permissions, less the process's `umask`.
    pub fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }

    /// Creates it.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        blocking(|| self.0.create(path))
    }
}
