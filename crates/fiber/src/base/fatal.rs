//! Ends the process after a violated invariant of the runtime: prints a message, dumps every G, M
//! and P, and aborts.
//!
//! [`throw`] can be called anywhere, with any lock held: it writes directly to standard error from
//! a buffer on the stack, allocates nothing, and waits for no other thread. Output that standard
//! error does not accept is lost: no write of the runtime panics.
//!
//! [`throw`] never returns and never runs exit handlers: it aborts the process.

use super::exit_guard;
use super::hook::Hook;
pub use super::stderr::Stderr;
use std::fmt::{self, Write};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// A function that writes the state of the runtime.
pub type Dump = fn(&mut Stderr);

static DUMP: Hook<Dump> = Hook::new();

/// Sets the function that [`throw`] calls after it has printed its message.
pub fn set_dump(dump: &'static Dump) {
    DUMP.set(dump);
}

/// Prints `runtime: message`, dumps the state of the runtime, and aborts the process.
#[cold]
#[inline(never)]
pub fn throw(message: fmt::Arguments<'_>) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::Relaxed) {
        // A second error, perhaps inside the dump of the first: the first message explains more.
        exit_guard::abort();
    }
    exit_guard::claim();
    let mut out = Stderr::new();
    let _ = writeln!(out, "runtime: {message}");
    out.flush();
    if let Some(dump) = DUMP.get() {
        dump(&mut out);
    }
    out.flush();
    exit_guard::abort()
}

/// The error number of a system call, for messages of code that must not allocate: printing an
/// [`io::Error`] allocates.
#[derive(Clone, Copy, Debug)]
pub struct Errno(i32);

impl Errno {
    /// Returns the error number in `why`; 0 if there is none.
    pub fn of(why: &io::Error) -> Errno {
        Errno(why.raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::EPERM => "operation not permitted",
            libc::EAGAIN => "resource temporarily unavailable",
            libc::EACCES => "permission denied",
            libc::EBADF => "bad file descriptor",
            libc::EINVAL => "invalid argument",
            libc::ENOMEM => "cannot allocate memory",
            libc::ENOSYS => "function not implemented",
            _ => "refused",
        };
        write!(out, "{name}, errno {}", self.0)
    }
}

/// Prints `runtime: message`. The process continues.
#[cold]
pub fn warn(message: fmt::Arguments<'_>) {
    let mut out = Stderr::new();
    let _ = writeln!(out, "runtime: {message}");
    out.flush();
}
