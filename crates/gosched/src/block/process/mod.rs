//! Child processes: [`std::process`], for goroutines.
//!
//! Names and results are those of std. The differences: a process is started in a
//! [marked](crate::blocking) call, the pipes to and from it are polled, and [`Child::wait`] parks
//! the goroutine (without the kernel's pidfd, it is a marked call). On an ordinary thread, these
//! calls block the thread.
//!
//! ```
//! use gosched::process::{Command, Stdio};
//! use std::io::{Read, Write};
//!
//! gosched::run(|| {
//!     let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
//!     let mut stdin = cat.stdin.take().unwrap();
//!     stdin.write_all(b"hello")?;
//!     drop(stdin); // `cat` reads the end of its input
//!     let mut answer = String::new();
//!     cat.stdout.take().unwrap().read_to_string(&mut answer)?;
//!     assert_eq!(answer, "hello");
//!     assert!(cat.wait()?.success());
//!     std::io::Result::Ok(())
//! }).unwrap();
//! ```
//!
//! Beyond std: [`Child::wait`], [`Child::try_wait`] and [`Child::kill`] take `&self`, so one
//! goroutine can kill a process while another waits for it. [`Child::send_signal`] and
//! [`Command::kill_on_drop`] are additions. Dropping a [`Child`] never kills the process, unless
//! [`Command::kill_on_drop`] is set.

mod child;
mod command;

pub use child::{Child, ChildStderr, ChildStdin, ChildStdout};
pub use command::Command;
#[doc(no_inline)]
pub use std::process::{ExitCode, ExitStatus, Output, Stdio, abort, exit, id};
