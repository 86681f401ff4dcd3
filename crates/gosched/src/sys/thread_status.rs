//! What a thread of this process is doing, as the kernel sees it. Without memory, and without std's help.

use libc::{c_int, pid_t};
use std::io::Write;
use std::sync::OnceLock;

/// See [`status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadStatus {
    /// It waits in the kernel.
    Blocked,
    /// It runs, or would if it had a CPU.
    Running,
    /// The kernel does not say.
    Unknown,
}

/// The calling thread's id.
pub(crate) fn id() -> pid_t {
    // SAFETY: it has no precondition.
    unsafe { libc::gettid() }
}

pub(crate) use gosched_fiber::watchdog::thread_cpu_nanos;

/// Asks the kernel.
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

/// A call that a thread is blocked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockedSyscall {
    pub(crate) number: i64,
    pub(crate) arguments: [usize; 6],
    /// Where the thread's stack pointer is, and its code.
    pub(crate) sp: usize,
    pub(crate) pc: usize,
}

/// As [`status`], and the call that the thread is blocked in, if it is one.
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

/// Whether reads or writes of the descriptor give up after a while: then they do not go on after a signal.
pub(crate) fn has_socket_timeout(file: c_int) -> bool {
    [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].into_iter().any(|limit| {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let mut length = size_of::<libc::timeval>() as libc::socklen_t;
        let to = (&raw mut time).cast();
        // SAFETY: room for a `timeval`.
        let status =
            unsafe { libc::getsockopt(file, libc::SOL_SOCKET, limit, to, &raw mut length) };
        status == 0 && (time.tv_sec, time.tv_usec) != (0, 0)
    })
}

/// What the kernel says about the thread.
fn read_proc_syscall(thread: pid_t, text: &mut [u8]) -> Option<&[u8]> {
    if !has_proc() {
        return None;
    }
    let mut path = [0u8; 48];
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/task/{thread}/syscall\0").ok()?;
    // SAFETY: a path that ends in a zero byte.
    let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: the buffer has that many bytes.
    let length = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    usize::try_from(length).ok().filter(|&length| length > 0).map(|length| &text[..length])
}

/// Whether `/proc` is to be used. Tests go without by `GOSCHED_PROC=off`.
pub(crate) fn has_proc() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| std::env::var_os("GOSCHED_PROC").is_none_or(|value| value != "off"))
}

/// The calling thread's sleeps are not rounded up.
pub(crate) fn minimize_timer_slack() {
    // SAFETY: it only changes how this thread is woken.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    // Asked here, where it may allocate.
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
            // It may be blocked by something else before it parks, and run again.
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
        // One that looks at itself sees that it looks.
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
