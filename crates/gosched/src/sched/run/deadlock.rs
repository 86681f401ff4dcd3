//! Nothing can ever run again: says so as Go does, and ends the process with status 2.
//!
//! The last M to fall asleep looks when nothing has run for a short time ([`activity::DEADLOCK_CHECK_DELAY`]), in which somebody may still
//! come. All of this must hold: every P is idle and every queue empty; every M sleeps; no timer can wake anybody; a
//! goroutine waits, or a thread waits for one; and there is no thread in the process that could change that. The
//! runtime's own threads cannot, and threads that wait in `run` or `join` cannot.
//!
//! A timer that sends into a channel on which nothing waits cannot wake anybody, as in Go, where such a timer is in no
//! heap. An M that has only fired such timers is as good as one that has slept on ([`schedule_check`]).
//!
//! The last M looks once more when it has slept for long, and a thread that begins to wait looks too. A thread that ends
//! later without a word is not noticed: that would take a look now and then, for ever.

use crate::gmp::m::M;
use crate::gmp::poll_desc;
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
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After this time the last M looks again, if nothing has run.
const RECHECK_DELAY: Duration = Duration::from_secs(10);

/// `goexit` was called in main.
pub(crate) static MAIN_HAS_EXITED: AtomicBool = AtomicBool::new(false);

/// A test in virtual time runs: other threads of the process are the harness's, and do not count.
pub(crate) static IGNORE_OTHER_THREADS: AtomicBool = AtomicBool::new(false);

/// Whether every P is idle and every M asleep, and neither I/O nor a timer will change that.
pub(crate) fn is_possible(locked: &Locked) -> bool {
    is_all_asleep(locked) && !poll_desc::has_waiters() && !timers::can_wake()
}

/// Whether every P is idle and every M asleep.
pub(crate) fn is_all_asleep(locked: &Locked) -> bool {
    let asleep = locked.idle_ms.len() + locked.locked_ms as usize;
    SCHED.is_idle() && asleep == locked.ms as usize && locked.queue.is_empty()
}

/// How long the last M sleeps before it looks. `is_quiet`: since it was last asked, the M has at most fired timers that
/// woke nobody. Under the lock.
pub(crate) fn schedule_check(locked: &mut Locked, is_quiet: bool) -> Duration {
    let now = clock::real_now();
    if !is_quiet || locked.deadlock_check_at == 0 {
        (locked.deadlock_check_at, locked.has_checked_deadlock) =
            (now + activity::DEADLOCK_CHECK_DELAY.as_nanos() as u64, false);
    }
    Duration::from_nanos(locked.deadlock_check_at.saturating_sub(now))
}

/// Sleeps as the last M there is for `timeout` at most, and looks after `check_in` if nobody came. True if it was woken.
pub(crate) fn sleep_and_check(
    m: &'static M,
    check_in: Duration,
    timeout: Option<Duration>,
) -> bool {
    if timeout.is_some_and(|timeout| timeout < check_in) {
        return m.sleep(timeout);
    }
    let start = clock::real_now();
    if m.sleep(Some(check_in)) || sleep_while_a_thread_starts(m) {
        return true;
    }
    let has_looked = SCHED.lock.lock().has_checked_deadlock;
    let answer = check_dead(if has_looked { Silence::Long } else { Silence::Short });
    let now = clock::real_now();
    if answer == Verdict::NotCertain {
        let mut locked = SCHED.lock.lock();
        (locked.deadlock_check_at, locked.has_checked_deadlock) =
            (now + RECHECK_DELAY.as_nanos() as u64, true);
    }
    let slept = Duration::from_nanos(now - start);
    m.sleep(timeout.map(|timeout| timeout.saturating_sub(slept)))
}

/// Sleeps a while as the last M there is, and looks if nobody came. True if it was woken.
pub(crate) fn sleep_as_the_last(m: &'static M) -> bool {
    let woken = m.sleep(Some(activity::DEADLOCK_CHECK_DELAY)) || sleep_while_a_thread_starts(m);
    if !woken {
        check_dead(Silence::Short);
    }
    woken
}

/// A thread of the runtime that exists and does not count yet would be taken for one of the program's. True if the M was
/// woken.
fn sleep_while_a_thread_starts(m: &'static M) -> bool {
    while thread_requests::is_starting_helper() {
        if m.sleep(Some(activity::DEADLOCK_CHECK_DELAY)) {
            return true;
        }
    }
    false
}

/// For how long nothing has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// For [`activity::DEADLOCK_CHECK_DELAY`].
    Short,
    /// For [`RECHECK_DELAY`].
    Long,
}

/// Why this is no deadlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Something can run, or nothing waits: whoever changes that looks.
    NoDeadlock,
    /// A thread that is no goroutine may wake something. It need not look when it ends.
    NotCertain,
}

/// Ends the process if nothing can run any more. By a thread that has begun to wait.
pub(crate) fn check_for_deadlock() {
    check_dead(Silence::Short);
}

/// Ends the process if nothing can run any more. By the last M to fall asleep, on g0.
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

/// All goroutines are asleep, and the system does not tell whether another thread could wake one: no reason to end the
/// process, but a program that hangs should not be silent. Says so once.
fn warn(silence: Silence) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if silence == Silence::Short || SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut out = Stderr::new();
    let seconds = RECHECK_DELAY.as_secs();
    let _ = writeln!(
        out,
        "runtime: all goroutines have been asleep for {seconds} s: a deadlock, unless a thread that is no goroutine wakes \
         one (the system does not tell how many threads there are)"
    );
    out.flush();
}

/// Go's message, every goroutine, exit status 2.
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
    // SAFETY: ends the process; nothing is left that could be flushed or unwound.
    unsafe { libc::_exit(2) }
}
