//! Calls that block the thread, said beforehand.

use crate::block::call;

/// Runs `f`, which may block the thread: a file, a C library, a lock of std's. If it does, others run
/// meanwhile, within microseconds. If it does not, it costs next to nothing.
///
/// Calls that are not marked in this way are noticed too, a little later.
///
/// ```
/// let text = gosched::blocking(|| std::fs::read_to_string("Cargo.toml"));
/// assert!(text.is_ok());
/// ```
///
/// `f` is still the goroutine: thread-locals, panics and `goexit` are as ever. If it comes into the runtime
/// (a channel, a lock of ours), the rest of it is code like any other. On an ordinary thread this just calls
/// `f`.
#[doc(alias = "entersyscall")]
pub fn blocking<F: FnOnce() -> R, R>(f: F) -> R {
    call::blocking(f)
}

/// As [`blocking`], for what blocks for certain, and for long: others run at once.
#[doc(alias = "entersyscallblock")]
pub fn blocking_now<F: FnOnce() -> R, R>(f: F) -> R {
    call::blocking_now(f)
}
