//! Waiting calls, marked and unmarked, beside goroutines that are preempted, and under a storm of
//! signals.

use crate::harness::{self, Heartbeat, MILLI, hogs, is_over, spawn_group};
use gosched::{blocking, blocking_now, time};
use gosched_tests::c_waits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a call is marked.
#[derive(Clone, Copy)]
enum Mark {
    None,
    Blocking,
    BlockingNow,
}

impl Mark {
    fn call<R>(self, f: impl FnOnce() -> R) -> R {
        match self {
            Mark::None => f(),
            Mark::Blocking => blocking(f),
            Mark::BlockingNow => blocking_now(f),
        }
    }
}

/// Makes every kind of call except `without` until the program is over. Returns the number of
/// calls, the smallest number of calls of a goroutine, and the number of interrupted calls.
fn call_all(marks: &'static [Mark], without: &str) -> (u64, u64, u64) {
    let names: Arc<[String]> = c_waits::names().into();
    let kinds: Vec<usize> = (0..names.len()).filter(|&kind| names[kind] != without).collect();
    let count = kinds.len() * marks.len();
    let interrupted = Arc::new(AtomicU64::new(0));
    let its_interrupted = interrupted.clone();
    let callers = spawn_group("a goroutine that calls", count, move |number, lane: &Heartbeat| {
        let (kind, mark) = (kinds[number % kinds.len()], marks[number / kinds.len()]);
        while !is_over() || lane.steps() == 0 {
            match mark.call(|| c_waits::run(kind)) {
                0 => {}
                libc::EINTR => {
                    its_interrupted.fetch_add(1, Relaxed);
                    eprintln!("{} was interrupted", names[kind]);
                }
                c_waits::WRONG => panic!("{}: a wrong result", names[kind]),
                c_waits::EARLY => panic!("{}: ended too early", names[kind]),
                error => panic!("{}: error {error}", names[kind]),
            }
            lane.step();
        }
        lane.steps()
    });
    harness::wait_for_moves_and_stop();
    let calls = callers.join();
    (calls.iter().sum(), *calls.iter().min().unwrap(), interrupted.load(Relaxed))
}

/// Starts tickers, so that timers make goroutines ready all the time.
fn tick_beside() -> harness::GoroutineGroup<u64> {
    spawn_group("a ticker", 2, |_, lane| {
        while !is_over() {
            time::sleep(MILLI);
            lane.step();
        }
        lane.steps()
    })
}

/// The runtime's own signals do not interrupt marked calls.
///
/// `system` is left out: it blocks SIGCHLD in its thread, so the kernel does not ignore that signal
/// but wakes another thread of the process with it. Calls in that thread that cannot be restarted
/// fail with EINTR. The same happens without goroutines.
pub(crate) fn marked() {
    let beside = [hogs(3 * gosched::runtime::procs()), tick_beside()];
    let (calls, least, interrupted) = call_all(&[Mark::Blocking, Mark::BlockingNow], "system");
    beside.into_iter().for_each(|all| drop(all.join()));
    println!("calls {calls} least {least} interrupted {interrupted}");
}

/// Another sender sends SIGURG to all threads: every call succeeds or fails with EINTR.
pub(crate) fn storm() {
    let sender = std::thread::spawn(|| {
        let mut sent = 0u64;
        while !is_over() || sent <= 1000 {
            for _ in 0..8 {
                sent += send_to_all(libc::SIGURG);
                std::thread::sleep(3 * MILLI);
            }
            // A fork that is interrupted restarts: it needs time to complete, on a slow machine
            // too.
            std::thread::sleep(20 * MILLI);
        }
        sent
    });
    let beside = [hogs(3 * gosched::runtime::procs()), tick_beside()];
    let (calls, least, interrupted) = call_all(&[Mark::None, Mark::Blocking], "");
    beside.into_iter().for_each(|all| drop(all.join()));
    let sent = sender.join().unwrap();
    println!("calls {calls} least {least} interrupted {interrupted} sent {sent}");
}

/// Sends a signal to each thread of the process. Returns the number of signals sent.
pub(crate) fn send_to_all(signal: i32) -> u64 {
    let mut sent = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let thread: i32 = task.file_name().to_str().unwrap().parse().unwrap();
        let process = std::process::id();
        // SAFETY: the signal is handled or ignored. If the thread is gone, the call returns an
        // error.
        let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
        sent += u64::from(result == 0);
    }
    sent
}
