//! Reports of goroutines on standard error: when the process ends because of an error, and when a
//! test fails. A report never takes std's lock of standard error, which another thread may hold.

use super::goroutines::{self, GoroutineFilter};
use super::hints;
use super::level;
use super::quit;
use super::text;
use super::threads;
use crate::sched::inspector::{Inspector, InterruptPolicy};
use crate::sched::{self, ExitReason};
use gosched_fiber::fatal::Stderr as RawStderr;
use gosched_fiber::watchdog::{self, OnHang, REPORT_CPU_BUDGET};
use gosched_fiber::{exit_guard, stderr};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::time::Duration;

/// Standard error without std's lock, which another thread may hold forever.
struct Stderr {
    /// Whether the watchdog runs. If so, it is paused during each write.
    is_watched: bool,
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The reader of standard error may be slow.
        if self.is_watched {
            watchdog::pause();
        }
        let written = stderr::write_once(bytes);
        if self.is_watched {
            watchdog::restart(REPORT_CPU_BUDGET);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the bytes to standard error, without a buffer.
pub(super) fn write_to_stderr(bytes: &[u8]) {
    stderr::write(bytes);
}

/// Like [`write_to_stderr`], while the watchdog runs.
pub(super) fn write_watched(bytes: &[u8]) {
    let _ = Stderr { is_watched: true }.write_all(bytes);
}

/// Starts the watchdog, which ends the process with status 2 if the report hangs: a lock that the
/// report needs (the allocator's, the loader's) may be held forever. Before it ends the process,
/// the watchdog lists all goroutines without their frames, which needs no lock and no memory.
pub(super) fn arm_watchdog() {
    watchdog::start(&(give_up_report as OnHang));
}

/// Like [`arm_watchdog`], for a signal handler that asks another thread to report.
pub(super) fn arm_watchdog_without_reporter() {
    watchdog::start_without_reporter(&(give_up_report as OnHang));
}

/// Ends a report that hangs, and the process.
fn give_up_report() -> ! {
    quit::write_header_once();
    let mut out = RawStderr::new();
    let _ = writeln!(
        out,
        "\nthe report is incomplete: it made no progress, probably because a lock that it needs is never released"
    );
    out.flush();
    sched::list_goroutines();
    exit_guard::end_process()
}

/// Prints all goroutines. The program may continue.
pub(crate) fn dump_to_stderr() {
    let _ = text::write_text(&mut Stderr { is_watched: false });
}

/// Prints the goroutines with these ids. The program continues.
fn show(ids: &[u64]) {
    write_to_stderr(b"\n");
    let out = &mut Stderr { is_watched: false };
    let _ = text::write_all(&mut goroutines::inspector(), GoroutineFilter::Only(ids), out);
}

/// Prints all goroutines of a process that is about to end.
pub(super) fn dump_at_the_end() {
    dump(GoroutineFilter::All);
}

fn dump(filter: GoroutineFilter<'_>) {
    arm_watchdog();
    let mut out = Stderr { is_watched: true };
    let mut inspector = ManuallyDrop::new(Inspector::new(InterruptPolicy::Always));
    let _ = text::write_all(&mut inspector, filter, &mut out);
    if filter == GoroutineFilter::All {
        let _ = threads::write_waiting(&mut inspector, &mut out);
    }
}

/// Prints which goroutines wait for each other, if `GODEBUG=leakhints=1` is set. Without that
/// setting, a dump is the same as Go's to the last line.
pub(super) fn print_deadlocks() {
    if !level::is_leakhints_on() {
        return;
    }
    // The analysis of a million goroutines takes several seconds.
    watchdog::restart(6 * REPORT_CPU_BUDGET);
    let deadlocks = hints::deadlocks(MIN_CHAN_WAIT);
    watchdog::restart(REPORT_CPU_BUDGET);
    if !deadlocks.is_empty() {
        write_watched(format!("\n{deadlocks}").as_bytes());
    }
}

/// How long a goroutine must have waited at a channel before the wait counts as a possible
/// deadlock. Less than the 10 ms after which a deadlock of all goroutines is reported.
const MIN_CHAN_WAIT: Duration = Duration::from_millis(5);

/// Prints the seed with which this run can be replayed, if it has one.
pub(super) fn print_seed() {
    if let Some(seed) = sched::seed() {
        let mut out = RawStderr::new();
        let _ = writeln!(out, "note: the scheduler's choices come from GOSCHED_SEED={seed}");
    }
}

/// Reports the goroutines of a process that is about to end, as Go does:
///
/// - After a fatal error, all goroutines, unless `GOTRACEBACK` turns frames off.
/// - After a panic, all goroutines except the caller, if `GOTRACEBACK` selects all.
/// - After a limit was reached, all goroutines; after a stack overflow, all except the caller. In
///   both cases with all details, regardless of `GOTRACEBACK`.
fn report(end: ExitReason) {
    // The panic hook has already printed the seed.
    if end != ExitReason::Panic {
        print_seed();
    }
    let level = level::level();
    if matches!(end, ExitReason::Limit | ExitReason::Overflow) {
        level::force_details();
    }
    let filter = match end {
        ExitReason::Fatal => (level.frames > 0).then_some(GoroutineFilter::All),
        ExitReason::Panic => {
            (level.frames > 0 && level.all).then_some(GoroutineFilter::AllButCaller)
        }
        ExitReason::Limit => Some(GoroutineFilter::All),
        ExitReason::Overflow => Some(GoroutineFilter::AllButCaller),
    };
    if let Some(filter) = filter {
        write_to_stderr(b"\n");
        dump(filter);
        if filter == GoroutineFilter::All {
            print_deadlocks();
        }
    }
    abort_if_level_is_crash();
}

/// Aborts if `GOTRACEBACK=crash` is set, so that the system can write a core dump.
pub(super) fn abort_if_level_is_crash() {
    if level::level().crash {
        // The program may have installed a handler.
        // SAFETY: the default action calls no handler.
        unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
        exit_guard::abort();
    }
}

/// Registers the functions by which the scheduler reports goroutines when the process must end.
/// Called before the program's `main`.
pub(crate) fn prepare() {
    sched::set_report(&(report as fn(ExitReason)));
    sched::set_show(&(show as fn(&[u64])));
    sched::set_overflow_report(&((|| report(ExitReason::Overflow)) as fn()));
    exit_guard::install();
    quit::note_inherited();
    // Read now, because a goroutine may hold the lock of the environment when a report begins.
    level::read_environment();
}
