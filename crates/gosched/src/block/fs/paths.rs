//! Functions that take the path of a file or directory.
//!
//! User code (`as_ref`) runs before the marked call begins: the marked call contains only std's
//! code.
//!
//! These functions never leave a file open: a file that a function opens is closed when it returns.

use super::{Metadata, Permissions};
use crate::block::call::blocking;
use std::io;
use std::path::{Path, PathBuf};

/// Reads the whole file into a vector of bytes.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    blocking(|| std::fs::read(path))
}

/// Reads the whole file into a string. Fails if the contents are not valid UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    blocking(|| std::fs::read_to_string(path))
}

/// Writes `contents` to a file. Creates the file if it does not exist, and replaces its contents if
/// it does.
#[doc(alias = "WriteFile")]
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    blocking(|| std::fs::write(path, contents))
}

/// Copies the contents and permissions of a file to another file, and returns the number of bytes
/// copied. Replaces the contents of `to` if it exists.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    blocking(|| std::fs::copy(from, to))
}

/// Renames a file or directory within one file system. Replaces `to` if it exists.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    blocking(|| std::fs::rename(from, to))
}

/// Removes a file or a symbolic link. The contents are freed when the file is no longer open.
#[doc(alias = "unlink")]
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::remove_file(path))
}

/// Removes an empty directory.
#[doc(alias = "rmdir")]
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::remove_dir(path))
}

/// Removes a directory with all its contents. Symbolic links are removed, not followed.
#[doc(alias = "RemoveAll")]
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::remove_dir_all(path))
}

/// Creates a directory. Its parent directory must exist.
#[doc(alias = "mkdir")]
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::create_dir(path))
}

/// Creates a directory and all its missing parents. A directory that already exists is not an
/// error.
#[doc(alias = "MkdirAll")]
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::create_dir_all(path))
}

/// Returns the metadata of a file. Follows symbolic links.
#[doc(alias = "stat")]
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    blocking(|| std::fs::metadata(path))
}

/// Returns the metadata of a file. Does not follow a symbolic link.
#[doc(alias = "lstat")]
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    blocking(|| std::fs::symlink_metadata(path))
}

/// Changes the permissions of a file or directory.
#[doc(alias = "chmod")]
pub fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::set_permissions(path, permissions))
}

/// Returns the absolute path of a file, with all symbolic links and all `.` and `..` resolved.
#[doc(alias = "realpath")]
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    blocking(|| std::fs::canonicalize(path))
}

/// Creates a hard link to a file, on the same file system.
pub fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    blocking(|| std::fs::hard_link(original, link))
}

/// Creates a symbolic link to `original`, which need not exist.
pub fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    blocking(|| std::os::unix::fs::symlink(original, link))
}

/// Returns the target of a symbolic link.
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    blocking(|| std::fs::read_link(path))
}

/// Returns whether the path refers to an existing file or directory. Follows symbolic links. Fails
/// if the system cannot determine it, for example for lack of permission.
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref();
    blocking(|| std::fs::exists(path))
}
