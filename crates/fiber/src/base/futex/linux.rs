//! Linux: the futex system call. The functions never allocate and never change errno.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `expected`. Returns `false` if `timeout` has expired.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    let timeout = timeout.map(|duration| libc::timespec {
        tv_sec: duration.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    call(word, libc::FUTEX_WAIT, expected, timeout) != libc::ETIMEDOUT
}

/// Wakes at most `count` threads that sleep on `word`. Uses only the address: the memory of the
/// word may have been freed.
pub fn wake(word: *const AtomicU32, count: u32) {
    call(word, libc::FUTEX_WAKE, count.min(i32::MAX as u32), std::ptr::null());
}

/// Makes the system call. Returns the errno of the call, and restores the errno from before.
fn call(word: *const AtomicU32, operation: i32, value: u32, timeout: *const libc::timespec) -> i32 {
    // SAFETY: errno always has an address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno of the calling thread or goroutine.
    let before = unsafe { errno.replace(0) };
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the timeout, and a word that the kernel reads, outlive the call; callers handle
    // spurious returns.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, timeout) };
    // SAFETY: as above.
    unsafe { errno.replace(before) }
}
