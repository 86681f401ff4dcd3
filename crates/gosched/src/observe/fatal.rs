//! What is shown when the process ends badly, and when a test does.

use super::goroutines::{self, GoroutineFilter};
use super::hints;
use super::level;
use super::quit;
use super::text;
use super::threads;
use crate::sched::inspector::{Inspector, InterruptPolicy};
use crate::sched::{self, ExitReason};
use gosched_fiber::exit_guard;
use gosched_fiber::fatal::Stderr as RawStderr;
use gosched_fiber::watchdog::{self, REPORT_CPU_BUDGET};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::time::Duration;

/// Standard error without std's lock, which somebody may hold for ever. While it is written to, the process does
/// not end by the alarm clock.
struct Stderr {
    /// The alarm clock is set.
    is_watched: bool,
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Whoever reads it may take its time.
        if self.is_watched {
            watchdog::pause();
        }
        // SAFETY: the bytes are there.
        let written = unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
        let written = usize::try_from(written).map_err(|_| io::Error::last_os_error());
        if self.is_watched {
            watchdog::restart(REPORT_CPU_BUDGET);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As it is, at once.
pub(super) fn write_to_stderr(bytes: &[u8]) {
    let _ = Stderr { is_watched: false }.write_all(bytes);
}

/// As [`write_to_stderr`], in a process that is watched.
pub(super) fn write_watched(bytes: &[u8]) {
    let _ = Stderr { is_watched: true }.write_all(bytes);
}

/// From here on the process ends, with status 2, if the report hangs: a lock that the report needs (the allocator's, the
/// loader's) may be held forever. Then all goroutines are listed without their frames, which needs no lock and no memory.
pub(super) fn arm_watchdog() {
    watchdog::start(|| {
        quit::write_header_once();
        let mut out = RawStderr::new();
        let _ = writeln!(out, "\nthe rest cannot be shown: a lock may be held for ever");
        out.flush();
        sched::list_goroutines();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(2) }
    });
}

/// All goroutines. The program may go on.
pub(crate) fn dump_to_stderr() {
    let _ = text::write_text(&mut Stderr { is_watched: false });
}

/// The goroutines with these ids. The program goes on.
fn show(ids: &[u64]) {
    write_to_stderr(b"\n");
    let out = &mut Stderr { is_watched: false };
    let _ = text::write_all(&mut goroutines::inspector(), GoroutineFilter::Only(ids), out);
}

/// All goroutines of a process that ends.
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

/// Who waits for whom, if `GODEBUG=leakhints=1`: else a dump is Go's, to the last line.
pub(super) fn print_deadlocks() {
    if !level::is_leakhints_on() {
        return;
    }
    // A million goroutines take some seconds.
    watchdog::restart(6 * REPORT_CPU_BUDGET);
    let deadlocks = hints::deadlocks(MIN_CHAN_WAIT);
    watchdog::restart(REPORT_CPU_BUDGET);
    if !deadlocks.is_empty() {
        write_watched(format!("\n{deadlocks}").as_bytes());
    }
}

/// How long one has waited at a channel before it is asked whether that is for ever: a deadlock of all is noticed
/// after 10 ms.
const MIN_CHAN_WAIT: Duration = Duration::from_millis(5);

/// The seed that replays this run, if it has one.
pub(super) fn print_seed() {
    if let Some(seed) = sched::seed() {
        let mut out = RawStderr::new();
        let _ = writeln!(out, "note: the scheduler's choices come from GOSCHED_SEED={seed}");
    }
}

/// As Go: all where nothing can go on; the others, where one is to blame, if `GOTRACEBACK` says so. Where a limit was
/// reached that is not asked, and everything is shown.
fn report(end: ExitReason) {
    // A panic has told it.
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
    crash_if_asked();
}

/// `GOTRACEBACK=crash`: the system keeps a core, if it does that.
pub(super) fn crash_if_asked() {
    if level::level().crash {
        // Somebody may have a handler.
        // SAFETY: the default is no handler of anybody's.
        unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
        std::process::abort();
    }
}

/// Lets the scheduler show goroutines when the process must end. Before the program's `main`.
pub(crate) fn prepare() {
    sched::set_report(report);
    sched::set_show(show);
    sched::set_overflow_report(|| report(ExitReason::Overflow));
    exit_guard::install();
    quit::note_inherited();
    // A goroutine may hold the lock of the environment when the report begins.
    level::read_environment();
}
