//! Files and directories: [`std::fs`], for goroutines.
//!
//! Names, arguments, results and errors are those of std, and so are the types that describe a file
//! ([`Metadata`], [`Permissions`] and others). The difference: every function that makes a system
//! call is a [marked call](crate::blocking), including the close of a [`File`] that is dropped. If
//! the call blocks, on a slow disk, a terminal, or a FIFO whose other end is not open, other
//! goroutines run meanwhile. A call that does not block costs hardly more than the system call
//! itself. On an ordinary thread, these functions behave like those of std.
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
//! A function that makes several system calls ([`read`], [`copy()`], [`remove_dir_all`]) is a
//! single marked call. A system call that a signal interrupts is retried where std retries it. A
//! [`File`] never has a deadline or a `close`, unlike the sockets of [`net`](crate::net).

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
