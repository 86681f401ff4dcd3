//! An M without work: looks once more, sleeps, and ends after a while.
//!
//! An M that has slept for [`IDLE_TIME`] does what can be done when nothing happens: stacks that
//! nobody wanted are given back, and it ends if there are more Ms than Ps. Then it sleeps without
//! end: a process that does nothing is not woken.

use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::gmp::poll_desc;
use crate::sched::events::VIRTUAL_TIME_IO_GRACE;
use crate::sched::run::{deadlock, poll, steal, timers};
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{poller_role, stopping, timekeeper};
use crate::sched::switch::{refill_from_global, stacks};
use crate::sched::wake;
use crate::sys::clock;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long an M sleeps before it may end.
const IDLE_TIME: Duration = Duration::from_millis(9_900);

/// The M has a P and found nothing: gives the P back, and sleeps unless there is work after all.
/// Returns when it has a P again, or is to end; with a G if it found one on the way.
/// Go: findRunnable, from releasep and pidleput to checkRunqsNoP.
pub(crate) fn release_p_and_recheck(m: &'static M, p: &'static P) -> Option<&'static G> {
    let mut locked = SCHED.lock.lock();
    if stopping::is_stopping() {
        return None;
    }
    if !locked.queue.is_empty() {
        std::mem::forget(locked);
        let g = refill_from_global(p);
        // SAFETY: held — above.
        unsafe { SCHED.lock.release() };
        p.start_slice();
        return g;
    }
    m.clear_timer_wake_if_g_ran(p);
    m.release_p();
    wake::become_idle(&mut locked, m, p);
    drop(locked);
    if let Some(p) = wake::recheck_for_work(m) {
        m.acquire_p(p);
    }
    None
}

/// Sleeps, in the list of idle Ms, until somebody gives it a P, or has it look again. False: it is to
/// end.
/// Go: stopm.
pub(crate) fn stop_m(m: &'static M) -> bool {
    let mut rested = false;
    let mut io_had_time = false;
    let mut is_quiet = m.take_timer_wake();
    loop {
        let mut locked = SCHED.lock.lock();
        // A P without an M comes first.
        if let Some(p) = locked.orphans.pop() {
            drop(locked);
            m.spinning.store(p.for_spinner.load(Ordering::Relaxed), Ordering::Relaxed);
            acquire_p_here(m, p);
            return true;
        }
        let sleep = Sleep::begin(m, &mut locked, is_quiet, io_had_time);
        drop(locked);
        is_quiet = true;
        io_had_time = sleep.polls && clock::is_virtual();
        let wake_delay = sleep.timer_delay.or(io_had_time.then_some(VIRTUAL_TIME_IO_GRACE));
        let timeout = earlier(wake_delay, (!rested).then_some(IDLE_TIME));
        let mut ready = GList::new();
        let woken = sleep.sleep(m, timeout, &mut ready);
        if !ready.is_empty() {
            return leave_poller_with_ready(m, ready, woken);
        }
        if !woken {
            match handle_timeout(m, sleep.jumped || (wake_delay.is_some() && wake_delay == timeout))
            {
                TimeoutOutcome::Ends => return false,
                TimeoutOutcome::Stays => {
                    give_memory_back();
                    rested = true;
                    continue;
                }
                TimeoutOutcome::Fires(p) => {
                    acquire_p_here(m, p);
                    m.set_timer_wake(p);
                    return true;
                }
                TimeoutOutcome::LooksAgain => continue,
                TimeoutOutcome::IsWoken => drop(m.sleep(None)),
            }
        }
        if sleep.polls && woken {
            poller_role::give_up_poll_role(&mut SCHED.lock.lock(), m);
        }
        if let Some(p) = m.take_next_p() {
            acquire_p_here(m, p);
        }
        return true;
    }
}

/// What an M in the list of idle Ms does for the others while it sleeps.
struct Sleep {
    /// It sleeps in the poller.
    polls: bool,
    /// It wakes when the first timer is due: so long from now.
    timer_delay: Option<Duration>,
    /// All sleep: it looks for a deadlock, so long from now.
    deadlock_check_in: Option<Duration>,
    /// It has advanced virtual time instead of sleeping.
    jumped: bool,
}

impl Sleep {
    /// Puts the M into the list of idle Ms. `is_quiet`: nothing has happened since it was there last. `io_had_time`: it
    /// has polled for a while in virtual time.
    fn begin(m: &'static M, locked: &mut Locked, is_quiet: bool, io_had_time: bool) -> Sleep {
        locked.idle_ms.push(m);
        let polls = poller_role::take_poll_role(locked, m);
        let timer_delay = timers::become_timekeeper(locked, m);
        let is_last = deadlock::is_possible(locked);
        let deadlock_check_in = is_last.then(|| deadlock::schedule_check(locked, is_quiet));
        // Where time is virtual, I/O comes first, for a while, and only who polls knows how long that was.
        let may_advance_time = if poll_desc::has_waiters() { polls && io_had_time } else { true };
        let may_jump = clock::is_virtual() && may_advance_time && deadlock::is_all_asleep(locked);
        let jumped = may_jump && timers::advance_virtual_time(locked);
        Sleep { polls, timer_delay, deadlock_check_in, jumped }
    }

    /// Returns whether the M was woken. Goroutines that I/O made ready go into the list.
    fn sleep(&self, m: &'static M, timeout: Option<Duration>, ready: &mut GList) -> bool {
        if self.jumped {
            false
        } else if self.polls {
            poll::sleep(m, timeout, ready)
        } else if let Some(check_in) = self.deadlock_check_in {
            deadlock::sleep_and_check(m, check_in, timeout)
        } else {
            m.sleep(timeout)
        }
    }
}

/// The shorter of two time limits. `None`: without one.
fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// I/O has made goroutines ready: the M runs them, if there is a P; else they wait for one, and so does it.
/// `woken`: somebody has taken it out of the list as well, and the wake-up has been taken: there is no other.
fn leave_poller_with_ready(m: &'static M, ready: GList, woken: bool) -> bool {
    let mut locked = SCHED.lock.lock();
    poller_role::give_up_poll_role(&mut locked, m);
    let asleep = !woken && locked.idle_ms.remove(m);
    let mut p = None;
    if asleep {
        timekeeper::resign_timekeeper(&mut locked, m);
        p = locked.pop_idle_p();
    }
    drop(locked);
    if !asleep {
        if !woken {
            // Somebody has taken it out of the list to wake it.
            m.sleep(None);
        }
        p = m.take_next_p();
    }
    if let Some(p) = p {
        acquire_p_here(m, p);
    }
    poll::inject_ready(m, ready);
    true
}

/// What an M finds that has slept long enough.
enum TimeoutOutcome {
    /// There are enough others: it is out of the list of idle Ms.
    Ends,
    /// It is kept; for now it is out of the list.
    Stays,
    /// A timer is due, and a P is idle: it spins.
    Fires(&'static P),
    /// It kept the time for nothing: others have fired what was due, or will.
    LooksAgain,
    /// Somebody has just taken it out of the list, to wake it.
    IsWoken,
}

fn acquire_p_here(m: &'static M, p: &'static P) {
    m.acquire_p(p);
    p.node.store(steal::current_node(), Ordering::Relaxed);
}

/// `for_timer`: it has slept until a timer was due, not until it was idle for long.
fn handle_timeout(m: &'static M, for_timer: bool) -> TimeoutOutcome {
    let mut locked = SCHED.lock.lock();
    let polled = poller_role::give_up_poll_role(&mut locked, m);
    if !locked.idle_ms.remove(m) {
        return TimeoutOutcome::IsWoken;
    }
    // An M must keep the time, and an M must poll.
    let kept = timekeeper::resign_timekeeper(&mut locked, m) | polled;
    if for_timer {
        let p = timekeeper::are_due().then(|| locked.pop_idle_p()).flatten();
        drop(locked);
        return p.map_or(TimeoutOutcome::LooksAgain, |p| {
            wake::start_spinning(m);
            TimeoutOutcome::Fires(p)
        });
    }
    // One more than Ps, beside those that cannot take one: the next hand-off must not have to wait for a
    // thread.
    let away = (locked.locked_ms + locked.blocked_ms) as usize;
    if kept || locked.ms as usize <= SCHED.procs() + 1 + away || m.is_main() {
        return TimeoutOutcome::Stays;
    }
    locked.ms -= 1;
    TimeoutOutcome::Ends
}

/// What this M keeps, stacks in the caches of idle Ps, and stacks that rest, back to the system.
fn give_memory_back() {
    let locked = SCHED.lock.lock();
    for p in locked.idle_ps.iter() {
        // SAFETY: owner — it is in the list of idle Ps, whose lock is held.
        stacks::give_up_stacks(unsafe { p.caches.get() });
    }
    let all_idle = SCHED.is_idle();
    drop(locked);
    gosched_fiber::stack::trim(if all_idle { Duration::ZERO } else { IDLE_TIME });
    gosched_alloc::release_memory();
}
