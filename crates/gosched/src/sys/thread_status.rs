//! The state of a thread of this process, as the kernel reports it. This module neither allocates
//! nor uses std's I/O, except in the first call of [`has_proc`]. The module never stops or signals
//! the thread that it inspects.

use gosched_fiber::base::environment;
use libc::{c_int, pid_t};
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

/// The state of a thread, returned by [`status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadStatus {
    /// The thread waits in the kernel.
    Blocked,
    /// The thread runs, or waits for a CPU.
    Running,
    /// The kernel does not report the state.
    Unknown,
}

/// Returns the calling thread's id.
pub(crate) fn id() -> pid_t {
    // SAFETY: `gettid` has no precondition.
    unsafe { libc::gettid() }
}

pub(crate) use gosched_fiber::watchdog::thread_cpu_nanos;

/// Returns the state of a thread.
pub(crate) fn status(thread: pid_t) -> ThreadStatus {
    parse_status(read_proc_syscall(thread, &mut [0u8; 16]))
}

fn parse_status(answer: Option<&[u8]>) -> ThreadStatus {
    match answer {
        None => ThreadStatus::Unknown,
        Some(text) if text.starts_with(b"running") => ThreadStatus::Running,
        Some(_) => ThreadStatus::Blocked,
    }
}

/// A system call that a thread is blocked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockedSyscall {
    pub(crate) number: i64,
    pub(crate) arguments: [usize; 6],
    /// The thread's stack pointer.
    pub(crate) sp: usize,
    /// The thread's program counter.
    pub(crate) pc: usize,
}

/// Like [`status`], and also returns the system call that the thread is blocked in, if there is
/// one.
pub(crate) fn status_and_syscall(thread: pid_t) -> (ThreadStatus, Option<BlockedSyscall>) {
    let mut text = [0u8; 256];
    let answer = read_proc_syscall(thread, &mut text);
    (parse_status(answer), answer.and_then(parse))
}

fn parse(answer: &[u8]) -> Option<BlockedSyscall> {
    let mut words = std::str::from_utf8(answer).ok()?.split_ascii_whitespace();
    let number = words.next()?.parse().ok().filter(|&number| number >= 0)?;
    let mut word = || usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = word()?;
    }
    Some(BlockedSyscall { number, arguments, sp: word()?, pc: word()? })
}

/// Returns whether the descriptor is a socket with a receive or send timeout. The kernel does not
/// restart calls on such a socket after a signal.
pub(crate) fn has_socket_timeout(file: c_int) -> bool {
    [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].into_iter().any(|limit| {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let mut length = size_of::<libc::timeval>() as libc::socklen_t;
        let to = (&raw mut time).cast();
        // SAFETY: `time` has room for a `timeval`.
        let status =
            unsafe { libc::getsockopt(file, libc::SOL_SOCKET, limit, to, &raw mut length) };
        status == 0 && (time.tv_sec, time.tv_usec) != (0, 0)
    })
}

/// Reads the thread's `/proc/self/task/<id>/syscall` into `text`. Returns `None` if that fails.
fn read_proc_syscall(thread: pid_t, text: &mut [u8]) -> Option<&[u8]> {
    if !has_proc() {
        return None;
    }
    let mut path = [0u8; 48];
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/task/{thread}/syscall\0").ok()?;
    // SAFETY: the path ends with a zero byte.
    let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: `text` has as many bytes as its length.
    let length = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: `file` was opened above.
    unsafe { libc::close(file) };
    usize::try_from(length).ok().filter(|&length| length > 0).map(|length| &text[..length])
}

/// Returns whether `/proc` may be used. Tests disable it by `GOSCHED_PROC=off`. The first call
/// reads the environment and may allocate.
pub(crate) fn has_proc() -> bool {
    /// 0 until the environment was read, then [`ALLOWED`] or [`FORBIDDEN`]. An atomic, because
    /// ThreadSanitizer does not see the synchronization inside `OnceLock`.
    static STATE: AtomicU8 = AtomicU8::new(0);
    const ALLOWED: u8 = 1;
    const FORBIDDEN: u8 = 2;
    let state = STATE.load(Ordering::Relaxed);
    if state != 0 {
        return state == ALLOWED;
    }
    let is_allowed = !environment::PROC.is("off");
    STATE.store(if is_allowed { ALLOWED } else { FORBIDDEN }, Ordering::Relaxed);
    is_allowed
}

/// Sets the timer slack of the calling thread to 1 ns, so that the kernel does not delay its
/// wake-ups.
pub(crate) fn minimize_timer_slack() {
    // SAFETY: the call only changes when the kernel wakes this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    // Called here because the first call may allocate, which later callers must not do.
    has_proc();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn a_thread_that_sleeps_is_blocked_and_one_that_computes_is_not() {
        let (thread, over) = (AtomicI32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                thread.store(id(), Ordering::Relaxed);
                while !over.load(Ordering::Relaxed) {
                    std::thread::park();
                }
            });
            let start = Instant::now();
            // The thread may first block for another reason and run again before it parks.
            let mut stands_still = false;
            while !stands_still {
                assert!(start.elapsed() < Duration::from_secs(120));
                let sleeper = thread.load(Ordering::Relaxed);
                let before =
                    thread_cpu_nanos(sleeper).filter(|_| status(sleeper) == ThreadStatus::Blocked);
                std::thread::sleep(Duration::from_millis(5));
                stands_still = before.is_some() && before == thread_cpu_nanos(sleeper);
            }
            over.store(true, Ordering::Relaxed);
            sleeper.thread().unpark();
        });
        // A second thread computes: a thread that inspects itself is in the system call that reads
        // the state.
        let (hog, over) = (AtomicI32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                hog.store(id(), Ordering::Relaxed);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            while hog.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(1));
            for _ in 0..1000 {
                assert_eq!(status(hog.load(Ordering::Relaxed)), ThreadStatus::Running);
            }
            over.store(true, Ordering::Relaxed);
        });
        let (before, start) = (thread_cpu_nanos(id()), Instant::now());
        while thread_cpu_nanos(id()) <= before {
            assert!(start.elapsed() < Duration::from_secs(120));
        }
        assert_eq!(thread_cpu_nanos(0), None);
    }
}
