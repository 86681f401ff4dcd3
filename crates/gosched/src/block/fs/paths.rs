//! What is done with a file or directory by its name.
//!
//! What callers bring along (`as_ref`) runs before the call begins: only std's code is in it.

use super::{Metadata, Permissions};
use crate::block::call::blocking;
use std::io;
use std::path::{Path, PathBuf};

/// All bytes of a file.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    blocking(|| std::fs::read(path))
}

/// All of a file, which must be UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    blocking(|| std::fs::read_to_string(path))
}

/// Makes `contents` all there is in a file, which is created if need be.
#[doc(alias = "WriteFile")]
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    blocking(|| std::fs::write(path, contents))
}

/// Copies a file's contents and permissions: how many bytes there were. What was in `to` is gone.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    blocking(|| std::fs::copy(from, to))
}

/// Gives a file or directory another name on the same file system; what had that name is replaced.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    blocking(|| std::fs::rename(from, to))
}

/// Removes a file or a symbolic link. The contents live until nobody has the file open.
#[doc(alias = "unlink")]
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::remove_file(path))
}

/// Removes a directory that is empty.
#[doc(alias = "rmdir")]
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::remove_dir(path))
}

/// Removes a directory with all there is in it. Symbolic links are removed, not followed.
#[doc(alias = "RemoveAll")]
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::remove_dir_all(path))
}

/// Creates a directory, in one that is there.
#[doc(alias = "mkdir")]
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::create_dir(path))
}

/// Creates a directory and all above it that are missing; one that is there is no error.
#[doc(alias = "MkdirAll")]
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::create_dir_all(path))
}

/// What the system knows of a file; of the one a symbolic link leads to.
#[doc(alias = "stat")]
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    blocking(|| std::fs::metadata(path))
}

/// As [`metadata`], but of a symbolic link itself.
#[doc(alias = "lstat")]
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    blocking(|| std::fs::symlink_metadata(path))
}

/// Changes who may do what with a file.
#[doc(alias = "chmod")]
pub fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::set_permissions(path, permissions))
}

/// The whole path, from the root on, without symbolic links and dots.
#[doc(alias = "realpath")]
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    blocking(|| std::fs::canonicalize(path))
}

/// Gives a file one more name, on the same file system.
pub fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    blocking(|| std::fs::hard_link(original, link))
}

/// Creates a symbolic link to `original`, whether that is there or not.
pub fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    blocking(|| std::os::unix::fs::symlink(original, link))
}

/// What a symbolic link says.
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    blocking(|| std::fs::read_link(path))
}

/// Whether there is something behind this name; an error if that cannot be told.
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref();
    blocking(|| std::fs::exists(path))
}
