//! The alarm clock of a report: a process that ends badly says why, and ends even if the report hangs.
//!
//! The clock rings once a second (SIGALRM), and asks how much CPU time the reporting thread has used since its last word. A
//! report hangs if it has not run for [`SILENT_RINGS`] seconds (it waits for a lock that is held forever), or if it has run
//! for [`PATIENCE`] (it loops). Then what the caller of [`watch`] passed is called, which ends the process. CPU time, not the
//! time of day: a busy machine gives the report a small share, and a slow report is not cut short.
//!
//! The handler may run on any thread, beside the reporter. [`TURN`] is even while the clock runs, and odd while it is paused
//! or being set. Reporter: 1. makes the turn odd; 2. changes the rest, or writes; 3. makes it even. Handler: 1. reads the turn,
//! and does nothing if it is odd; 2. judges; 3. acts only if the turn is still the same. So a ring that comes late neither
//! judges a report by half of its numbers nor starts a clock that was paused.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// After so many seconds without CPU time a report hangs.
const SILENT_RINGS: u32 = 10;
/// How long a report may run without a word.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Less CPU time than this is none: the handler itself takes some.
const LEAST_NANOS: u64 = 2_000_000;

/// See the top of this file.
static TURN: AtomicU32 = AtomicU32::new(1);
/// The thread that reports.
static REPORTER: AtomicI32 = AtomicI32::new(0);
/// What [`Progress`] has.
static END: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);
static SILENT: AtomicU32 = AtomicU32::new(0);
/// What [`watch`] was given.
static ON_HANG: AtomicUsize = AtomicUsize::new(0);

/// From here on the calling thread reports. `on_hang` ends the process; it is called in a signal handler, on any thread.
pub fn watch(on_hang: fn() -> !) {
    pause();
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
    pause();
    // SAFETY: gettid has no precondition.
    let me = unsafe { libc::gettid() };
    let used = cpu_time(me).unwrap_or(0);
    REPORTER.store(me, Ordering::Relaxed);
    END.store(used.saturating_add(patience.as_nanos() as u64), Ordering::Relaxed);
    SEEN.store(used, Ordering::Relaxed);
    SILENT.store(0, Ordering::Relaxed);
    // PAIR watchdog-turn: publishes the numbers above.
    TURN.fetch_add(1, Ordering::SeqCst);
    alarm(1);
}

/// Stops the clock: a reader of the report may take its time.
pub fn pause() {
    // PAIR watchdog-turn: a handler that read another turn does nothing.
    TURN.fetch_or(1, Ordering::SeqCst);
    alarm(0);
}

fn alarm(seconds: u32) {
    // SAFETY: alarm has no precondition.
    unsafe { libc::alarm(seconds) };
}

/// How long a thread of this process has run, in nanoseconds. `None`: the thread is gone.
pub fn cpu_time(thread: libc::pid_t) -> Option<u64> {
    // The kernel's numbering of clocks: a thread's, of what the scheduler counted.
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a `timespec`.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    (thread != 0 && done).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

extern "C" fn on_alarm(_signal: i32) {
    // SAFETY: the calling thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    ring();
    // SAFETY: as above.
    unsafe { *errno = before };
}

fn ring() {
    // PAIR watchdog-turn: sees the numbers of this turn.
    let turn = TURN.load(Ordering::SeqCst);
    if turn & 1 != 0 {
        return;
    }
    let used = cpu_time(REPORTER.load(Ordering::Relaxed)).unwrap_or(0);
    let before = Progress {
        end: END.load(Ordering::Relaxed),
        seen: SEEN.load(Ordering::Relaxed),
        silent: SILENT.load(Ordering::Relaxed),
    };
    let now = before.after_ring(used);
    // PAIR watchdog-turn: the numbers were all of one turn.
    if TURN.load(Ordering::SeqCst) != turn {
        return;
    }
    let on_hang = ON_HANG.load(Ordering::Relaxed);
    if now.hangs(used) && on_hang != 0 {
        // SAFETY: only `watch` stores there.
        let on_hang = unsafe { std::mem::transmute::<usize, fn() -> !>(on_hang) };
        on_hang();
    }
    SEEN.store(now.seen, Ordering::Relaxed);
    SILENT.store(now.silent, Ordering::Relaxed);
    alarm(1);
}

/// What is known of a report. Times are CPU times of the reporter, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// When the report hangs although it runs.
    end: u64,
    /// When the report was last seen to run.
    seen: u64,
    /// How often in a row the clock rang for a report that had not run.
    silent: u32,
}

impl Progress {
    fn after_ring(self, used: u64) -> Progress {
        if used.saturating_sub(self.seen) >= LEAST_NANOS {
            Progress { seen: used, silent: 0, ..self }
        } else {
            Progress { silent: self.silent + 1, ..self }
        }
    }

    fn hangs(self, used: u64) -> bool {
        self.silent >= SILENT_RINGS || used >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn begin() -> Progress {
        Progress { end: PATIENCE.as_nanos() as u64, seen: 0, silent: 0 }
    }

    /// At which ring a report hangs that gets so much CPU time a second, if it does within `rings`.
    fn hangs_at(rings: u64, nanos_a_second: u64) -> Option<u64> {
        let mut progress = begin();
        (1..=rings).find(|ring| {
            let used = ring * nanos_a_second;
            progress = progress.after_ring(used);
            progress.hangs(used)
        })
    }

    #[test]
    fn a_report_that_gets_a_small_share_of_the_machine_is_not_cut_short() {
        assert_eq!(hangs_at(300, 20 * MILLI), None);
        assert_eq!(hangs_at(300, MILLI), None, "2 ms in two seconds");
    }

    #[test]
    fn a_report_that_does_not_run_hangs() {
        assert_eq!(hangs_at(300, 0), Some(u64::from(SILENT_RINGS)));
        assert_eq!(hangs_at(300, 50_000), Some(u64::from(SILENT_RINGS)), "only the handler runs");
    }

    #[test]
    fn a_report_that_runs_without_a_word_hangs_after_its_patience() {
        assert_eq!(hangs_at(300, 1000 * MILLI), Some(PATIENCE.as_secs()));
    }
}
