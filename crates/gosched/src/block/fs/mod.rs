//! Files and directories: [`std::fs`], for goroutines.
//!
//! Names, arguments, results and errors are std's, and so are the types that describe a file
//! ([`Metadata`], [`Permissions`] and others). What differs: every call that asks the system for something is
//! [marked](crate::blocking), the close when a [`File`] is dropped too. A file on a slow disk, a pipe that
//! nobody has opened at its other end, a terminal: other goroutines run while one waits for it. What does not
//! block costs hardly more than the system call. On an ordinary thread these are std's functions.
//!
//! ```
//! use gosched::fs::{self, File};
//! use std::io::Write;
//!
//! # fn main() -> std::io::Result<()> {
//! let directory = std::env::temp_dir().join(format!("gosched-fs-{}", std::process::id()));
//! fs::create_dir_all(&directory)?;
//! let path = directory.join("greeting");
//! let text = gosched::run(move || {
//!     let mut file = File::create(&path)?;
//!     file.write_all(b"Hello, file")?;
//!     file.sync_all()?;
//!     fs::read_to_string(&path)
//! })?;
//! assert_eq!(text, "Hello, file");
//! fs::remove_dir_all(&directory)
//! # }
//! ```
//!
//! A function that needs several system calls ([`read`], [`copy()`], [`remove_dir_all`]) is one marked call
//! from its first to its last. A call that a signal interrupts is repeated where std repeats it.

mod dir;
mod file;
mod options;
mod paths;

pub use dir::{DirBuilder, DirEntry, ReadDir, read_dir};
pub use file::File;
pub use options::OpenOptions;
pub use paths::{
    canonicalize, copy, create_dir, create_dir_all, exists, hard_link, metadata, read, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions, symlink,
    symlink_metadata, write,
};
#[doc(no_inline)]
pub use std::fs::{FileTimes, FileType, Metadata, Permissions, TryLockError};
