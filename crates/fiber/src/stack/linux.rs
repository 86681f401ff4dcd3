//! What stacks ask of Linux: reserve, commit, guard, give back.

use std::sync::OnceLock;

/// `MADV_GUARD_INSTALL`: Linux 6.13.
const MADV_GUARD_INSTALL: i32 = 102;

/// `MADV_DONTNEED_LOCKED`: as `MADV_DONTNEED`, for locked memory too.
const MADV_DONTNEED_LOCKED: i32 = 24;

/// "This process" where a pidfd is expected (Linux 6.14): no descriptor, right after a fork too.
const PIDFD_SELF: i32 = -10000;

/// Ranges per `process_madvise` call; the kernel's own limit (`UIO_MAXIOV`) is 1024.
const BATCH: usize = 64;

/// A range of addresses: start and length in bytes.
pub(super) type Range = (usize, usize);

/// errno of a call that failed.
pub(super) type Errno = i32;

/// Address space that nothing can be stored in yet; not counted against any commit limit.
pub(super) fn reserve(bytes: usize) -> Result<usize, Errno> {
    injected_failure(Call::Reserve)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, where the kernel likes; it touches no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(errno());
    }
    // A stack touches its pages from one end: a huge page would commit all of it at once. Kernels
    // without huge pages refuse the advice, and need it as little.
    // SAFETY: advice on the mapping made above.
    unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(at as usize)
}

/// Gives a reservation back. False if the system refuses (it would have to split a mapping, and has
/// no more): the range is as before.
///
/// # Safety
/// - **unused**: nothing in the range is used any more.
pub(super) unsafe fn release((at, bytes): Range) -> bool {
    // SAFETY: unused — promised by the caller.
    unsafe { libc::munmap(at as *mut libc::c_void, bytes) == 0 }
}

/// Makes a reserved range writable.
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
/// - **ours**, **unused**: part of a reservation that holds nothing.
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

/// Makes each range fault on access without splitting the mapping it lies in.
///
/// # Safety
/// - **ours**, **unused**: the ranges are committed parts of a reservation that hold nothing.
pub(super) unsafe fn guard(ranges: &[Range]) -> Result<(), Errno> {
    injected_failure(Call::Guard)?;
    // SAFETY: ours, unused — promised by the caller.
    unsafe { advise(ranges, MADV_GUARD_INSTALL) }
}

/// Gives the pages of each range back; they read as zero afterwards. Guards stay. False if the
/// system refuses: the ranges are then as before, or some of them zero.
///
/// # Safety
/// - **ours**, **unused**: as for [`guard`].
pub(super) unsafe fn discard(ranges: &[Range]) -> bool {
    // SAFETY: ours, unused — promised by the caller.
    let done = unsafe { advise(ranges, libc::MADV_DONTNEED) };
    // Locked memory (mlockall) has advice of its own, since Linux 5.18.
    // SAFETY: ours, unused — promised by the caller.
    done.is_ok() || unsafe { advise(ranges, MADV_DONTNEED_LOCKED) }.is_ok()
}

/// One call per batch where the kernel takes batches, else one per range.
///
/// # Safety
/// - **ours**: the advice may be given to these ranges.
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

/// # Safety
/// - **ours**: the advice may be given to these ranges.
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

/// Zeroed memory that is never given back.
pub(super) fn map_forever(bytes: usize) -> Result<*mut u8, Errno> {
    injected_failure(Call::Table)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, where the kernel likes; it touches no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(errno()) } else { Ok(at.cast()) }
}

/// `GOSCHED_GUARD=mprotect` forces the guards of older kernels, so that tests run both.
pub(super) fn uses_mprotect_guards() -> bool {
    static FORCED: OnceLock<bool> = OnceLock::new();
    *FORCED.get_or_init(|| std::env::var_os("GOSCHED_GUARD").is_some_and(|way| way == "mprotect"))
}

/// How many mappings a process may have before stacks take no more, where each guard takes some:
/// three quarters of what the system allows, so that the program never meets that limit because of
/// us.
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

/// How many mappings the process has, ours and its own. Allocates nothing: a lock is held.
pub(super) fn count_mappings() -> usize {
    // SAFETY: a path; the descriptor is closed below.
    let maps = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if maps < 0 {
        return 0;
    }
    let mut lines = 0;
    let mut buffer = [0u8; 4096];
    loop {
        // SAFETY: the buffer is as long as said.
        let read = unsafe { libc::read(maps, buffer.as_mut_ptr().cast(), buffer.len()) };
        if read <= 0 {
            break;
        }
        lines += buffer[..read as usize].iter().filter(|&&byte| byte == b'\n').count();
    }
    // SAFETY: opened above.
    unsafe { libc::close(maps) };
    lines
}

/// Milliseconds of a clock that never goes back; coarse, since it only dates unused stacks.
pub(super) fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux this crate runs on; `now` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM)
}

/// The calls that tests can make fail.
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

    /// Runs `f` while every `call` of this thread fails with `errno`.
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
