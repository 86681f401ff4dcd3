//! Linux: the futex system call.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `expected`. False if `timeout` is over.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    let timeout = timeout.map(|duration| libc::timespec {
        tv_sec: duration.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    call(word, libc::FUTEX_WAIT, expected, timeout) != libc::ETIMEDOUT
}

/// Wakes up to `count` threads that sleep on `word`: an address, which may be nothing any more.
pub fn wake(word: *const AtomicU32, count: u32) {
    call(word, libc::FUTEX_WAKE, count.min(i32::MAX as u32), std::ptr::null());
}

/// Returns what the call left in errno, and leaves there what was.
fn call(word: *const AtomicU32, operation: i32, value: u32, timeout: *const libc::timespec) -> i32 {
    // SAFETY: errno has an address, always.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's (or goroutine's) own word.
    let before = unsafe { errno.replace(0) };
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word that is looked at, and the timeout, outlive the call; a spurious return is the
    // caller's to handle.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, timeout) };
    // SAFETY: as above.
    unsafe { errno.replace(before) }
}
