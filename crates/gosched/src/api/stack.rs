//! More stack for one call.

use crate::sched;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `f` on a stack of its own with at least `bytes` for frames, as the caller: in the same
/// goroutine or thread, with the same thread-locals. A panic goes through.
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
/// On systems without a port `f` runs where it is.
///
/// # Errors
/// The size cannot be had: `f` was not called.
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
        None => unreachable!("it was called"),
    }
}
