//! Blocking calls that the program marks in advance. The closure never runs in another goroutine:
//! `block::call` marks the call in the caller.

use crate::block::call;

/// Runs `f`, which may block the thread, and lets other goroutines run if it does.
///
/// The call of `f` is a *marked call*: the runtime knows in advance that it may block. Use
/// `blocking` for calls that may wait in the kernel: file access, C libraries, locks of std. If `f`
/// blocks, another thread runs the other goroutines, usually within a millisecond. If `f` does not
/// block, the mark costs next to nothing. The runtime also detects that a goroutine blocks in other
/// code (an *unmarked call*), but a little later.
///
/// ```
/// let text = gosched::blocking(|| std::fs::read_to_string("Cargo.toml"));
/// assert!(text.is_ok());
/// ```
///
/// `f` runs in the calling goroutine: thread-locals, panics and [`goexit`](crate::goexit) work as
/// usual. The mark ends early if `f` calls into the runtime, for example to use a channel or a lock
/// of [`sync`](crate::sync); the rest of `f` is then like unmarked code. On an ordinary thread,
/// `blocking` only calls `f`.
#[doc(alias = "entersyscall")]
pub fn blocking<F: FnOnce() -> R, R>(f: F) -> R {
    call::blocking(f)
}

/// Runs `f`, which is certain to block the thread for long, and lets other goroutines run at once.
///
/// Otherwise the same as [`blocking`]. It costs more: the other goroutines move to another thread
/// even if `f` returns immediately.
#[doc(alias = "entersyscallblock")]
pub fn blocking_now<F: FnOnce() -> R, R>(f: F) -> R {
    call::blocking_now(f)
}
