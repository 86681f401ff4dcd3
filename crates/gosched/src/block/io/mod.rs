//! Pipes, the standard streams, and [`copy()`]: input and output other than files and the network.
//!
//! The traits are those of std ([`std::io::Read`], [`std::io::Write`] and [`std::io::BufRead`]), so
//! code that is generic over them works unchanged.
//!
//! This module never changes the mode (blocking or non-blocking) of the standard streams, because
//! other processes may share them.
//!
//! ```
//! use gosched::io;
//! use std::io::{Read, Write};
//!
//! gosched::run(|| {
//!     let (mut reader, mut writer) = io::pipe()?;
//!     let sent = gosched::go(move || writer.write_all(b"through a pipe"));
//!     let mut text = String::new();
//!     reader.read_to_string(&mut text)?; // until the writer is dropped
//!     assert_eq!(text, "through a pipe");
//!     sent.join().unwrap()
//! }).unwrap();
//! ```

#[cfg(feature = "hyper")]
pub(crate) mod async_wait;
pub(crate) mod by_reference;
mod copy;
#[macro_use]
mod fd_api;
mod fast_copy;
#[macro_use]
mod pipe;
pub(crate) mod polled;
mod standard;
mod streams;

pub use copy::{CopyError, copy};
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use streams::{
    Stderr, StderrLock, Stdin, StdinLock, Stdout, StdoutLock, stderr, stdin, stdout,
};

// The names that the macros of `pipe` use.
pub(crate) mod names {
    pub(crate) use super::polled::Polled;
    pub(crate) use crate::sys::descriptor;
    pub(crate) use crate::sys::poller::Direction;
    pub(crate) use std::fmt;
    pub(crate) use std::io::{self, IoSlice, IoSliceMut, Read, Write};
    pub(crate) use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
    pub(crate) use std::process::Stdio;
    pub(crate) use std::time::Instant;
}
