//! The alarm clock of a report: a process that ends badly says why, and ends even if the report hangs.
//!
//! The clock rings once a second (SIGALRM), and asks how much CPU time the reporting thread has used since its last word. A
//! report hangs if it has not run for [`SILENT_RINGS`] seconds (it waits for a lock that is held forever), or if it has run
//! for [`PATIENCE`] (it loops). Then what the caller of [`watch`] passed is called, which ends the process. CPU time, not the
//! time of day: a busy machine gives the report a small share, and a slow report is not cut short.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// After so many seconds without CPU time a report hangs.
const SILENT_RINGS: u32 = 10;
/// How long a report may run without a word.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Less CPU time in a second than this is none: the handler itself takes some.
const LEAST_NANOS: u64 = 2_000_000;

/// The thread that reports.
static REPORTER: AtomicI32 = AtomicI32::new(0);
/// The CPU time at which the report hangs, and the one at which it was last seen to run, in nanoseconds.
static END: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);
/// How often in a row the clock rang for a report that had not run.
static SILENT: AtomicU32 = AtomicU32::new(0);
/// What [`watch`] was given.
static ON_HANG: AtomicUsize = AtomicUsize::new(0);

/// From here on the calling thread reports. `on_hang` ends the process; it is called in a signal handler, on any thread.
pub fn watch(on_hang: fn() -> !) {
    ON_HANG.store(on_hang as usize, Ordering::Relaxed);
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_alarm as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler keeps the rules of one; the process has nothing to do any more but end.
    unsafe { libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()) };
    let_through();
    set(PATIENCE);
}

/// Unblocks SIGALRM on the calling thread.
fn let_through() {
    // SAFETY: all-zero is a valid set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid set and signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGALRM) };
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

/// Sets the clock: the calling thread reports, and may run for `patience` before its next word.
pub fn set(patience: Duration) {
    // SAFETY: gettid has no precondition.
    REPORTER.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    let used = used_by_reporter();
    END.store(used.saturating_add(patience.as_nanos() as u64), Ordering::Relaxed);
    SEEN.store(used, Ordering::Relaxed);
    SILENT.store(0, Ordering::Relaxed);
    alarm(1);
}

/// Stops the clock: a reader of the report may take its time.
pub fn pause() {
    alarm(0);
}

fn alarm(seconds: u32) {
    // SAFETY: alarm has no precondition.
    unsafe { libc::alarm(seconds) };
}

/// CPU time of the reporting thread, in nanoseconds; 0 if the thread is gone.
fn used_by_reporter() -> u64 {
    // The kernel's numbering of clocks: a thread's, of what the scheduler counted.
    let clock = (!REPORTER.load(Ordering::Relaxed) << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a `timespec`.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

extern "C" fn on_alarm(_signal: i32) {
    // SAFETY: the calling thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    if !hangs() {
        alarm(1);
        // SAFETY: as above.
        unsafe { *errno = before };
        return;
    }
    let on_hang = ON_HANG.load(Ordering::Relaxed);
    if on_hang != 0 {
        // SAFETY: only `watch` stores there.
        let on_hang = unsafe { std::mem::transmute::<usize, fn() -> !>(on_hang) };
        on_hang();
    }
}

/// Counts a ring. True: the report hangs.
fn hangs() -> bool {
    let used = used_by_reporter();
    let silent = if used.saturating_sub(SEEN.load(Ordering::Relaxed)) >= LEAST_NANOS {
        SEEN.store(used, Ordering::Relaxed);
        0
    } else {
        SILENT.load(Ordering::Relaxed) + 1
    };
    SILENT.store(silent, Ordering::Relaxed);
    silent >= SILENT_RINGS || used >= END.load(Ordering::Relaxed)
}
