//! Child processes of goroutines, while other goroutines are preempted in malloc, in stdio, and
//! while they hold locks.

use crate::harness::{self, Heartbeat, burn_micros, hogs, is_over, spawn_group};
use crate::memory;
use gosched::blocking;
use gosched_tests::wait::LIMIT;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Seconds after which a signal ends a child that has not ended.
const LIMIT_SECONDS: u32 = LIMIT.as_secs() as u32;

/// Forks a child that runs only `f` and exits with its result. In the parent, returns `Ok` if the
/// child exited with status 0, and otherwise a description of what happened.
pub(crate) fn forked(f: impl FnOnce() -> i32) -> Result<(), String> {
    // SAFETY: the child runs only `f`, which is made for a child of fork, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: has no precondition. The signal ends a child that hangs.
        unsafe { libc::alarm(LIMIT_SECONDS) };
        let status = f();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: a child of this process.
    let waited = blocking(|| unsafe { libc::waitpid(child, &raw mut status, 0) });
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 && waited == child {
        Ok(())
    } else {
        Err(format!("waitpid {waited} of {child}, status {status:#x}"))
    }
}

/// Returns whether SIGURG is unblocked in the calling thread.
fn is_reachable() -> bool {
    // SAFETY: an all-zero set is the empty set.
    let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: only reads the mask.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask) };
    // SAFETY: a set that was written above.
    unsafe { libc::sigismember(&mask, libc::SIGURG) == 0 }
}

fn by_std(plain: bool) -> Result<(), String> {
    let mut command = Command::new("/bin/true");
    if !plain {
        let limit = || {
            // SAFETY: has no precondition. The signal ends a child that hangs.
            unsafe { libc::alarm(LIMIT_SECONDS) };
            Ok(())
        };
        // SAFETY: `alarm` may be called in a child of fork.
        unsafe { command.pre_exec(limit) };
    }
    let status = blocking(|| command.stdin(Stdio::null()).status()).map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{status:?}")) }
}

fn by_exec() -> Result<(), String> {
    let arguments = [c"/bin/true".as_ptr(), std::ptr::null()];
    // SAFETY: a null-terminated list of C strings.
    forked(|| unsafe { libc::execv(arguments[0], arguments.as_ptr()) })
}

/// The child uses C's allocator, and has SIGURG unblocked as in its parent.
fn by_malloc() -> Result<(), String> {
    forked(|| {
        for size in [24, 400, 5000, 100_000] {
            // SAFETY: malloc accepts any size.
            let block = unsafe { libc::malloc(size) };
            if block.is_null() {
                return 2;
            }
            // SAFETY: allocated above.
            unsafe { libc::free(block) };
        }
        if is_reachable() { 0 } else { 3 }
    })
}

/// The child uses Rust's allocator.
fn by_vec() -> Result<(), String> {
    forked(|| {
        let lists: Vec<Vec<u8>> = (1..50).map(|count| vec![count; count as usize * 100]).collect();
        i32::from(lists.iter().any(|list| list[0] as usize * 100 != list.len()))
    })
}

/// A lock held by goroutines that are preempted.
static LOCK: Mutex<u64> = Mutex::new(0);

fn hold_locks(number: usize, lane: &Heartbeat) -> u64 {
    while !is_over() {
        match number % 2 {
            0 => {
                let mut guard = LOCK.lock().unwrap();
                burn_micros(300);
                *guard += 1;
            }
            _ => {
                let mut out = std::io::stdout().lock();
                burn_micros(300);
                writeln!(out, "beside").unwrap();
            }
        }
        lane.step();
    }
    lane.steps()
}

/// Forks children repeatedly. `kind` selects what the children do.
pub(crate) fn fork(kind: &str) {
    let fork: fn() -> Result<(), String> = match kind {
        "std" => || by_std(true),
        "std after fork" => || by_std(false),
        "exec" => by_exec,
        "malloc" => by_malloc,
        "vec" => by_vec,
        other => panic!("no kind {other}"),
    };
    let beside = [
        hogs(3),
        spawn_group("a goroutine in malloc", 3, memory::take_and_give),
        spawn_group("a goroutine with a lock", 4, hold_locks),
    ];
    let parents = spawn_group("a goroutine that forks", 2, move |_, lane| {
        while !is_over() || lane.steps() == 0 {
            fork().unwrap();
            lane.step();
        }
        lane.steps()
    });
    harness::wait_and_stop();
    beside.into_iter().for_each(|all| drop(all.join()));
    println!("children {}", parents.join().iter().sum::<u64>());
}
