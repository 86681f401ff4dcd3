//! The end of the process when a rule of ours was broken: says so, shows every G, M and P, aborts.
//!
//! It may run anywhere, with any lock held: it writes straight to standard error from a buffer on
//! the stack, allocates nothing, and waits for nobody. What standard error does not take is lost:
//! no write of the runtime panics.

use super::exit_guard;
pub use super::stderr::Stderr;
use std::fmt::{self, Write};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Writes the state of the runtime.
pub type Dump = fn(&mut Stderr);

/// Set once a runtime has something to show.
static DUMP: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// What [`throw`] shows besides its message.
pub fn set_dump(dump: Dump) {
    DUMP.store(dump as *mut (), Ordering::Relaxed);
}

/// Prints `runtime: message`, dumps, aborts.
#[cold]
#[inline(never)]
pub fn throw(message: fmt::Arguments<'_>) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::Relaxed) {
        // A second one, perhaps inside the first's dump: the first is the one to read.
        std::process::abort();
    }
    exit_guard::claim();
    let mut out = Stderr::new();
    let _ = writeln!(out, "runtime: {message}");
    out.flush();
    let dump = DUMP.load(Ordering::Relaxed);
    if !dump.is_null() {
        // SAFETY: `set_dump` stored a function of this type.
        let dump = unsafe { std::mem::transmute::<*mut (), Dump>(dump) };
        dump(&mut out);
    }
    out.flush();
    std::process::abort()
}

/// An error of a system call, for messages of code that must not allocate: to print an [`io::Error`] does.
#[derive(Clone, Copy, Debug)]
pub struct Errno(i32);

impl Errno {
    /// The number in `why`.
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

/// Prints `runtime: message`. The process goes on.
#[cold]
pub fn warn(message: fmt::Arguments<'_>) {
    let mut out = Stderr::new();
    let _ = writeln!(out, "runtime: {message}");
    out.flush();
}
