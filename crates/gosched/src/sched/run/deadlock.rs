//! Detects that nothing can ever run again: prints Go's message and ends the process with status 2.
//!
//! The last M to fall asleep checks after nothing has run for [`activity::DEADLOCK_CHECK_DELAY`], a
//! short time in which another thread may still make a G ready. It is a deadlock if all of this
//! holds:
//!
//! - Every P is idle, every queue is empty, and every M sleeps.
//! - No G waits for I/O, no thread waits with a time limit, and no timer can make anything ready.
//! - A G waits, or a thread waits for a G.
//! - No other thread of the process could make a G ready. The runtime's own threads cannot, and
//!   threads that wait in `run` or `join` cannot.
//!
//! A timer that sends into a channel on which nothing waits cannot make anything ready. (In Go,
//! such a timer is in no heap.) An M that has only fired such timers counts as if it had not woken
//! ([`schedule_check`]).
//!
//! The last M checks once more after [`RECHECK_DELAY`], and a thread that begins to wait checks
//! too. A deadlock that is completed later, by a thread that exits, is not detected: that would
//! need periodic checks.
//!
//! This module never wakes a G to resolve a deadlock: it reports the deadlock and ends the process.

use crate::gmp::poll_desc;
use crate::gmp::token::OnM;
use crate::sched::run::timers;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::thread_requests::{self, HELPER_THREADS};
use crate::sched::state::{counts, report};
use crate::sched::switch::stacks;
use crate::sched::threads::activity;
use crate::sched::wake;
use crate::sys::clock;
use crate::sys::fatal::Stderr;
use crate::sys::thread_count::count_threads;
use gosched_fiber::exit_guard;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long after an uncertain check the last M checks again, if nothing has run meanwhile.
const RECHECK_DELAY: Duration = Duration::from_secs(10);

/// Whether the main goroutine called `goexit`.
pub(crate) static MAIN_HAS_EXITED: AtomicBool = AtomicBool::new(false);

/// Whether other threads of the process are ignored. Set while a test runs in virtual time: the
/// other threads belong to the test harness.
pub(crate) static IGNORE_OTHER_THREADS: AtomicBool = AtomicBool::new(false);

/// Returns whether every P is idle, every M sleeps, and neither I/O nor a timer will change that.
pub(crate) fn is_possible(locked: &Locked) -> bool {
    is_all_asleep(locked) && !poll_desc::has_waiters() && !timers::can_wake()
}

/// Returns whether every P is idle, every M sleeps, and the global queue is empty.
pub(crate) fn is_all_asleep(locked: &Locked) -> bool {
    let asleep = locked.idle_ms.len() + locked.locked_ms as usize;
    SCHED.is_idle() && asleep == locked.ms as usize && locked.queue.is_empty()
}

/// Returns how long the last M sleeps before it checks for a deadlock. `is_quiet` is set if, since
/// the previous call, the M has at most fired timers that made nothing ready. Called under the
/// lock.
pub(crate) fn schedule_check(locked: &mut Locked, is_quiet: bool) -> Duration {
    let now = clock::real_now();
    if !is_quiet || locked.deadlock_check_at == 0 {
        (locked.deadlock_check_at, locked.has_checked_deadlock) =
            (now + activity::DEADLOCK_CHECK_DELAY.as_nanos() as u64, false);
    }
    Duration::from_nanos(locked.deadlock_check_at.saturating_sub(now))
}

/// Sleeps as the last M, for at most `timeout`, and checks for a deadlock after `check_in`. Returns
/// whether the M was woken.
pub(crate) fn sleep_and_check(
    mut on: OnM<'_>,
    check_in: Duration,
    timeout: Option<Duration>,
) -> bool {
    if timeout.is_some_and(|timeout| timeout < check_in) {
        return on.sleep(timeout);
    }
    let start = clock::real_now();
    if on.sleep(Some(check_in)) || sleep_while_a_thread_starts(on.lend()) {
        return true;
    }
    let has_checked = SCHED.lock.lock().has_checked_deadlock;
    let answer = check_dead(if has_checked { Silence::Long } else { Silence::Short });
    let now = clock::real_now();
    if answer == Verdict::NotCertain {
        let mut locked = SCHED.lock.lock();
        (locked.deadlock_check_at, locked.has_checked_deadlock) =
            (now + RECHECK_DELAY.as_nanos() as u64, true);
    }
    let slept = Duration::from_nanos(now - start);
    on.sleep(timeout.map(|timeout| timeout.saturating_sub(slept)))
}

/// Sleeps for a short time as the last M, and checks for a deadlock if the M was not woken. Returns
/// whether the M was woken.
pub(crate) fn sleep_as_the_last(mut on: OnM<'_>) -> bool {
    let woken =
        on.sleep(Some(activity::DEADLOCK_CHECK_DELAY)) || sleep_while_a_thread_starts(on.lend());
    if !woken {
        check_dead(Silence::Short);
    }
    woken
}

/// Sleeps while a helper thread of the runtime starts. Such a thread may exist without being
/// counted, and would be taken for a thread of the program. Returns whether the M was woken.
fn sleep_while_a_thread_starts(on: OnM<'_>) -> bool {
    while thread_requests::is_starting_helper() {
        if on.sleep(Some(activity::DEADLOCK_CHECK_DELAY)) {
            return true;
        }
    }
    false
}

/// How long nothing has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// For [`activity::DEADLOCK_CHECK_DELAY`].
    Short,
    /// For [`RECHECK_DELAY`].
    Long,
}

/// The reason why a check did not end the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Something can run, or nothing waits. The thread that changes this checks again.
    NoDeadlock,
    /// A thread that is not a goroutine may make a G ready. It does not check again when it exits.
    NotCertain,
}

/// Ends the process if nothing can ever run again. Called by a thread that has begun to wait, and
/// by the main thread when its M has ended.
pub(crate) fn check_for_deadlock() {
    check_dead(Silence::Short);
}

/// Ends the process if nothing can ever run again, otherwise returns why not. The last M to fall
/// asleep calls this on g0.
/// Go: checkdead.
fn check_dead(silence: Silence) -> Verdict {
    let locked = SCHED.lock.lock();
    let stuck = is_possible(&locked) && !wake::is_g_queued();
    let (ms, stackless) = (locked.ms as usize, !locked.stackless.is_empty());
    drop(locked);
    if activity::has_thread_with_deadline() {
        return Verdict::NoDeadlock;
    }
    let waiting = activity::waiting();
    let exited = MAIN_HAS_EXITED.load(Ordering::Relaxed);
    if !stuck || (counts::num_goroutines() == 0 && waiting == 0 && !exited) {
        return Verdict::NoDeadlock;
    }
    let known = ms + HELPER_THREADS.load(Ordering::Relaxed) as usize + waiting;
    if !IGNORE_OTHER_THREADS.load(Ordering::Relaxed) {
        match count_threads(known) {
            Some(all) if all <= known => {}
            Some(_) => return Verdict::NotCertain,
            None => {
                warn(silence);
                return Verdict::NotCertain;
            }
        }
    }
    if activity::waiting() != waiting {
        return Verdict::NoDeadlock;
    }
    let locked = SCHED.lock.lock();
    if !is_possible(&locked) || wake::is_g_queued() || activity::waiting() != waiting {
        return Verdict::NoDeadlock;
    }
    drop(locked);
    if stackless {
        stacks::fatal_out_of_stacks();
    }
    report_and_exit()
}

/// Warns once that all goroutines have been asleep for [`RECHECK_DELAY`]. Called if the threads of
/// the process cannot be counted: another thread may wake a goroutine, so the process must not end,
/// but a program that hangs should not be silent.
fn warn(silence: Silence) {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    if silence == Silence::Short || HAS_WARNED.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut out = Stderr::new();
    let seconds = RECHECK_DELAY.as_secs();
    let _ = writeln!(
        out,
        "runtime: all goroutines have been asleep for {seconds} s: a deadlock, unless another thread of the program wakes \
         one (the system does not allow the runtime to count the threads)"
    );
    out.flush();
}

/// Prints Go's message and all goroutines, and ends the process with status 2.
fn report_and_exit() -> ! {
    report::begin();
    let mut out = Stderr::new();
    let message = if counts::num_goroutines() == 0 && MAIN_HAS_EXITED.load(Ordering::Relaxed) {
        "no goroutines (main called runtime.Goexit) - deadlock!"
    } else {
        "all goroutines are asleep - deadlock!"
    };
    let _ = writeln!(out, "fatal error: {message}");
    out.flush();
    report::report(report::ExitReason::Fatal);
    exit_guard::end_process()
}
