//! The maximum size of the main thread's stack. This module never changes the system's limit:
//! `bytes` only reads it.

/// Returns the system's limit in bytes, adjusted to at least 1 MiB and at most [`MAX_BYTES`].
/// Returns 8 MiB if the limit cannot be read.
pub(crate) fn bytes() -> usize {
    const DEFAULT_BYTES: usize = 8 << 20;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } != 0 {
        return DEFAULT_BYTES;
    }
    usize::try_from(limit.rlim_cur).unwrap_or(DEFAULT_BYTES).clamp(1 << 20, 1 << 30).min(MAX_BYTES)
}

/// Upper bound of [`bytes`], so that an unlimited stack does not reserve too much address space.
const MAX_BYTES: usize = 64 << 20;
