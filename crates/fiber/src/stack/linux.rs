//! Memory calls for stacks on Linux: reserve, commit, guard, discard. These functions never panic
//! if the system refuses: they return the refusal, or a default.

use crate::base::environment;
use std::sync::OnceLock;

/// Advice `MADV_GUARD_INSTALL`: pages fault on access. Since Linux 6.13.
const MADV_GUARD_INSTALL: i32 = 102;

/// Advice `MADV_DONTNEED_LOCKED`: like `MADV_DONTNEED`, also for locked memory.
const MADV_DONTNEED_LOCKED: i32 = 24;

/// Stands for the calling process where a pidfd is expected (Linux 6.14). It needs no descriptor,
/// and is valid right after a fork too.
const PIDFD_SELF: i32 = -10000;

/// Number of ranges per `process_madvise` call; the kernel's own limit (`UIO_MAXIOV`) is 1024.
const BATCH: usize = 64;

/// A range of addresses: start and length in bytes.
pub(super) type Range = (usize, usize);

/// The `errno` of a failed call.
pub(super) type Errno = i32;

/// Reserves address space that cannot be accessed and does not count against any commit limit.
/// Returns its start.
pub(super) fn reserve(bytes: usize) -> Result<usize, Errno> {
    injected_failure(Call::Reserve)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: creates a mapping at an address that the kernel chooses; no existing memory changes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(errno());
    }
    // A stack touches its pages from one end, and a huge page would commit all of them at once. A
    // kernel without huge pages refuses the advice, and does not need it.
    // SAFETY: the advice is for the mapping created above.
    unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(at as usize)
}

/// Releases a reservation. Returns `false` if the system refuses: it would have to split a mapping,
/// and the process has reached its limit of mappings. The range is then unchanged.
///
/// # Safety
/// - **unused**: nothing in the range is in use.
pub(super) unsafe fn release((at, bytes): Range) -> bool {
    // SAFETY: unused — promised by the caller.
    unsafe { libc::munmap(at as *mut libc::c_void, bytes) == 0 }
}

/// Makes a reserved range readable and writable.
///
/// # Safety
/// - **ours**: the range is part of a reservation.
pub(super) unsafe fn commit(range: Range) -> Result<(), Errno> {
    injected_failure(Call::Commit)?;
    // SAFETY: ours — promised by the caller.
    unsafe { protect(range, libc::PROT_READ | libc::PROT_WRITE) }
}

/// Undoes [`commit`].
///
/// # Safety
/// - **ours**, **unused**: the range is part of a reservation and holds nothing.
pub(super) unsafe fn decommit(range: Range) -> Result<(), Errno> {
    // SAFETY: ours, unused — promised by the caller.
    unsafe { protect(range, libc::PROT_NONE) }
}

/// # Safety
/// - **ours**: the range is part of a reservation.
unsafe fn protect((at, bytes): Range, protection: i32) -> Result<(), Errno> {
    // SAFETY: ours — promised by the caller.
    let done = unsafe { libc::mprotect(at as *mut libc::c_void, bytes, protection) };
    if done == 0 { Ok(()) } else { Err(errno()) }
}

/// Makes each range fault on access, without splitting the mapping that contains it.
///
/// # Safety
/// - **ours**, **unused**: the ranges are committed parts of a reservation and hold nothing.
pub(super) unsafe fn guard(ranges: &[Range]) -> Result<(), Errno> {
    injected_failure(Call::Guard)?;
    // SAFETY: ours, unused — promised by the caller.
    unsafe { advise(ranges, MADV_GUARD_INSTALL) }
}

/// Gives the pages of each range back to the system; they read as zero afterwards. Guards stay in
/// place. Returns `false` if the system refuses: all ranges are then unchanged, or some of them are
/// zeroed.
///
/// # Safety
/// - **ours**, **unused**: as for [`guard`].
pub(super) unsafe fn discard(ranges: &[Range]) -> bool {
    // SAFETY: ours, unused — promised by the caller.
    let done = unsafe { advise(ranges, libc::MADV_DONTNEED) };
    // Locked memory (mlockall) needs another advice, available since Linux 5.18.
    // SAFETY: ours, unused — promised by the caller.
    done.is_ok() || unsafe { advise(ranges, MADV_DONTNEED_LOCKED) }.is_ok()
}

/// Gives advice on ranges: one call per batch if the kernel supports that, otherwise one per range.
///
/// # Safety
/// - **ours**: the caller may give this advice on these ranges.
unsafe fn advise(ranges: &[Range], advice: i32) -> Result<(), Errno> {
    for batch in ranges.chunks(BATCH) {
        // SAFETY: ours — promised by the caller.
        if unsafe { !advise_batch(batch, advice) } {
            for &(at, bytes) in batch {
                // SAFETY: ours — promised by the caller.
                if unsafe { libc::madvise(at as *mut libc::c_void, bytes, advice) } != 0 {
                    return Err(errno());
                }
            }
        }
    }
    Ok(())
}

/// Gives advice on at most [`BATCH`] ranges in one call. Returns whether it took effect on all of
/// them.
///
/// # Safety
/// - **ours**: the caller may give this advice on these ranges.
unsafe fn advise_batch(batch: &[Range], advice: i32) -> bool {
    let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut vectors = [empty; BATCH];
    let mut bytes = 0;
    for (vector, &(at, len)) in vectors.iter_mut().zip(batch) {
        *vector = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
        bytes += len;
    }
    let vectors = vectors.as_ptr();
    // SAFETY: ours — promised by the caller; the vectors live until the call returns.
    let done = unsafe {
        libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, vectors, batch.len(), advice, 0)
    };
    done == bytes as libc::c_long
}

/// Maps zeroed memory that is never unmapped.
pub(super) fn map_forever(bytes: usize) -> Result<*mut u8, Errno> {
    injected_failure(Call::Table)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: creates a mapping at an address that the kernel chooses; no existing memory changes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(errno()) } else { Ok(at.cast()) }
}

/// Returns whether `GOSCHED_GUARD=mprotect` is set. It forces the guards of older kernels, so that
/// tests cover both kinds.
pub(super) fn uses_mprotect_guards() -> bool {
    static FORCED: OnceLock<bool> = OnceLock::new();
    *FORCED.get_or_init(|| environment::GUARD.is("mprotect"))
}

/// Returns the number of mappings of the process beyond which no more stacks are created, on
/// kernels where guards take mappings. This is three quarters of what the system allows, so that
/// stacks never make the program reach the system's limit.
pub(super) fn mapping_limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let allowed = std::fs::read_to_string("/proc/sys/vm/max_map_count")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(65530usize);
        allowed / 4 * 3
    })
}

/// Returns the number of mappings of the process, including those of stacks. Does not allocate,
/// because the caller holds a lock.
pub(super) fn count_mappings() -> usize {
    // SAFETY: the path is a C string; the descriptor is closed below.
    let maps = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if maps < 0 {
        return 0;
    }
    let mut lines = 0;
    let mut buffer = [0u8; 4096];
    loop {
        // SAFETY: `buffer` is valid for writes of its length.
        let read = unsafe { libc::read(maps, buffer.as_mut_ptr().cast(), buffer.len()) };
        if read <= 0 {
            break;
        }
        lines += buffer[..read as usize].iter().filter(|&&byte| byte == b'\n').count();
    }
    // SAFETY: `maps` was opened above.
    unsafe { libc::close(maps) };
    lines
}

/// Returns the time of a monotonic clock in milliseconds. The clock is coarse, which is enough to
/// date unused stacks.
pub(super) fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux this crate runs on; `now` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM)
}

/// System calls that tests can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Reserve,
    Commit,
    Guard,
    Table,
}

#[cfg(not(test))]
fn injected_failure(_: Call) -> Result<(), Errno> {
    Ok(())
}

#[cfg(test)]
pub(super) use refusal::{injected_failure, with_injected_failure};

#[cfg(test)]
mod refusal {
    use super::{Call, Errno};
    use std::cell::Cell;

    thread_local! {
        static REFUSED: Cell<Option<(Call, Errno)>> = const { Cell::new(None) };
    }

    pub(in super::super) fn injected_failure(call: Call) -> Result<(), Errno> {
        match REFUSED.get() {
            Some((refused, errno)) if refused == call => Err(errno),
            _ => Ok(()),
        }
    }

    /// Runs `f` while every `call` on this thread fails with `errno`.
    pub(in super::super) fn with_injected_failure<R>(
        call: Call,
        errno: Errno,
        f: impl FnOnce() -> R,
    ) -> R {
        REFUSED.set(Some((call, errno)));
        let result = f();
        REFUSED.set(None);
        result
    }
}
