//! [`with_stack`]: more stack for a single call. The closure never runs in another goroutine: only
//! the stack changes.

use crate::sched;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `f` on a separate stack that has at least `bytes` bytes for frames, and returns its result.
///
/// `f` runs in the calling goroutine or thread, with the same thread-locals. A panic in `f`
/// propagates to the caller.
///
/// ```
/// fn depth(left: usize) -> usize {
///     let frame = std::hint::black_box([0u8; 1024]);
///     if left == 0 { frame[0].into() } else { 1 + depth(left - 1) }
/// }
/// let deep = gosched::run(|| gosched::with_stack(64 << 20, || depth(1_000)).unwrap());
/// assert_eq!(deep, 1_000);
/// ```
///
/// On systems other than Linux on x86-64 with glibc, `f` runs on the caller's stack.
///
/// # Errors
/// `bytes` is 0 or greater than 64 GiB, there is no memory for the stack, or the process cannot
/// give goroutines their own thread-locals (see [`backend`](crate::runtime::backend)). `f` is not
/// called.
pub fn with_stack<F, R>(bytes: usize, f: F) -> io::Result<R>
where
    F: FnOnce() -> R,
{
    let mut f = Some(f);
    let mut result = None;
    sched::with_stack(bytes, &mut || {
        if let Some(f) = f.take() {
            result = Some(catch_unwind(AssertUnwindSafe(f)));
        }
    })?;
    match result {
        Some(Ok(result)) => Ok(result),
        Some(Err(payload)) => resume_unwind(payload),
        None => unreachable!("`sched::with_stack` calls the closure if it succeeds"),
    }
}
