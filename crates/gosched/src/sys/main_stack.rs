//! How large the stack of the process's main thread may grow.

/// The limit where there is one, 8 MiB where there is none or it cannot be told.
pub(crate) fn bytes() -> usize {
    const DEFAULT_BYTES: usize = 8 << 20;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } != 0 {
        return DEFAULT_BYTES;
    }
    usize::try_from(limit.rlim_cur).unwrap_or(DEFAULT_BYTES).clamp(1 << 20, 1 << 30).min(MAX_BYTES)
}

/// No limit at all is no reason to reserve that much.
const MAX_BYTES: usize = 64 << 20;
