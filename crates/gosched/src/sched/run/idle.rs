//! An M without work: checks once more, sleeps, and exits after a while.
//!
//! An M that has slept for [`IDLE_TIME`] exits if there are more Ms than needed. Otherwise it
//! returns unused memory to the system and sleeps again, without a time limit: an idle process is
//! not woken.
//!
//! An M never sleeps here while it has a P.

use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::p::P;
use crate::gmp::poll_desc;
use crate::gmp::token::{OnM, OwnedP};
use crate::probe;
use crate::probe::event::EventKind;
use crate::probe::field::Source;
use crate::sched::events::VIRTUAL_TIME_IO_GRACE;
use crate::sched::run::{deadlock, poll, steal, timers};
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{poller_role, stopping, timekeeper};
use crate::sched::switch::{refill_from_global, stacks};
use crate::sched::wake;
use crate::sys::clock;
use crate::sys::fatal::fatal;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long an M sleeps before it may exit.
const IDLE_TIME: Duration = Duration::from_millis(9_900);

/// Releases the P of an M that found no work, then checks all queues once more. Returns a G if the
/// global queue holds one. Otherwise returns `None`: the M has a P if there is work after all or
/// the world stops, and no P if it should sleep.
/// Go: findRunnable, from releasep and pidleput to checkRunqsNoP.
pub(crate) fn release_p_and_recheck(mut p: OwnedP<'_>) -> Option<&'static G> {
    let mut locked = SCHED.lock.lock();
    if stopping::is_stopping() {
        return None;
    }
    if !locked.queue.is_empty() {
        let g = refill_from_global(&mut locked, p.lend());
        drop(locked);
        p.on_m().set_source(Source::Global);
        p.start_slice();
        return g;
    }
    let (p, on) = p.release();
    on.clear_timer_wake_if_g_ran(p);
    wake::become_idle(&mut locked, &on, p);
    drop(locked);
    if let Some(p) = wake::recheck_for_work(&on) {
        on.acquire_p(p);
    }
    None
}

/// Sleeps in the list of idle Ms until the M is handed a P, or must check for work again. Returns
/// false if the M must exit.
/// Go: stopm.
pub(crate) fn stop_m(mut on: OnM<'_>) -> bool {
    let m = on.m();
    let mut rested = false;
    let mut has_polled_in_virtual_time = false;
    let mut is_quiet = m.take_timer_wake();
    loop {
        let mut locked = SCHED.lock.lock();
        // A P that waits for an M is taken before the M sleeps.
        if let Some(p) = locked.orphans.pop_front() {
            drop(locked);
            m.spinning.set_counted(p.for_spinner.take());
            acquire_p_and_record_node(on, p);
            return true;
        }
        let sleep = Sleep::begin(on.lend(), &mut locked, is_quiet, has_polled_in_virtual_time);
        if probe::is_recording() {
            let keeps_time = sleep.timer_delay.is_some();
            on.record(EventKind::Sleep { polls: sleep.polls, keeps_time });
        }
        drop(locked);
        is_quiet = true;
        has_polled_in_virtual_time = sleep.polls && clock::is_virtual();
        let wake_delay =
            sleep.timer_delay.or(has_polled_in_virtual_time.then_some(VIRTUAL_TIME_IO_GRACE));
        let timeout = earlier(wake_delay, (!rested).then_some(IDLE_TIME));
        let mut ready = GList::new();
        let woken = sleep.sleep(on.lend(), timeout, &mut ready);
        if probe::is_recording() {
            on.record(EventKind::Awake {});
        }
        if !ready.is_empty() {
            return leave_poller_with_ready(on.lend(), ready, woken);
        }
        if !woken {
            let for_timer = sleep.jumped || (wake_delay.is_some() && wake_delay == timeout);
            match handle_timeout(on.lend(), for_timer) {
                TimeoutOutcome::Ends => return false,
                TimeoutOutcome::Stays => {
                    give_memory_back();
                    rested = true;
                    continue;
                }
                TimeoutOutcome::Fires(p) => {
                    acquire_p_and_record_node(on, p);
                    m.set_timer_wake(p);
                    return true;
                }
                TimeoutOutcome::ChecksAgain => continue,
                TimeoutOutcome::IsWoken => drop(m.sleep(None)),
            }
        }
        if sleep.polls && woken {
            poller_role::give_up_poll_role(&mut SCHED.lock.lock(), m);
        }
        if let Some(p) = m.next_p.take() {
            acquire_p_and_record_node(on, p);
        }
        return true;
    }
}

/// What an M in the list of idle Ms does for the other Ms while it sleeps.
struct Sleep {
    /// Whether the M sleeps in the poller.
    polls: bool,
    /// If the M is the timekeeper: how long until the first timer is due.
    timer_delay: Option<Duration>,
    /// If all other Ms sleep: how long until this M checks for a deadlock.
    deadlock_check_in: Option<Duration>,
    /// Whether the M has advanced virtual time instead of sleeping.
    jumped: bool,
}

impl Sleep {
    /// Puts the M into the list of idle Ms. `is_quiet` is set if the M has run no G since it last
    /// slept. `has_polled_in_virtual_time` is set if the M has just polled for a while in virtual
    /// time.
    fn begin(
        on: OnM<'_>,
        locked: &mut Locked,
        is_quiet: bool,
        has_polled_in_virtual_time: bool,
    ) -> Sleep {
        let m = on.m();
        if m.p().is_some() || m.spinning.is_spinning() {
            fatal!("M{} becomes idle with a P, or while it spins", m.id);
        }
        locked.idle_ms.push_front(m);
        let polls = poller_role::take_poll_role(locked, m);
        let timer_delay = timers::become_timekeeper(locked, m);
        let is_last = deadlock::is_possible(locked);
        let deadlock_check_in = is_last.then(|| deadlock::schedule_check(locked, is_quiet));
        // In virtual time, I/O gets some real time before the clock advances, and only the M in the
        // poller measures that time.
        let may_advance_time =
            if poll_desc::has_waiters() { polls && has_polled_in_virtual_time } else { true };
        let may_jump = clock::is_virtual() && may_advance_time && deadlock::is_all_asleep(locked);
        let jumped = may_jump && timers::advance_virtual_time(locked);
        Sleep { polls, timer_delay, deadlock_check_in, jumped }
    }

    /// Sleeps. Returns whether the M was woken. Adds the Gs that I/O made ready to `ready`.
    fn sleep(&self, on: OnM<'_>, timeout: Option<Duration>, ready: &mut GList) -> bool {
        if self.jumped {
            false
        } else if self.polls {
            poll::sleep(on, timeout, ready)
        } else if let Some(check_in) = self.deadlock_check_in {
            deadlock::sleep_and_check(on, check_in, timeout)
        } else {
            on.sleep(timeout)
        }
    }
}

/// Returns the shorter of two time limits; `None` means no limit.
fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Leaves the poller with Gs that I/O made ready. Queues them on an idle P if there is one,
/// otherwise before all other Gs in the global queue. `woken` is set if another thread has also
/// woken the M, and that wake-up is consumed.
fn leave_poller_with_ready(mut on: OnM<'_>, ready: GList, woken: bool) -> bool {
    let m = on.m();
    let mut locked = SCHED.lock.lock();
    poller_role::give_up_poll_role(&mut locked, m);
    let asleep = !woken && locked.idle_ms.remove(m);
    let mut p = None;
    if asleep {
        timekeeper::resign_timekeeper_with_p(&mut locked, m);
        p = locked.pop_idle_p();
    }
    drop(locked);
    if !asleep {
        if !woken {
            // Another thread has taken the M out of the list, and its wake-up is still to come.
            m.sleep(None);
        }
        p = m.next_p.take();
    }
    if let Some(p) = p {
        acquire_p_and_record_node(on.lend(), p);
    }
    poll::inject_ready(on, ready);
    true
}

/// What an M does whose sleep has timed out.
enum TimeoutOutcome {
    /// The M exits: there are enough other Ms. It is no longer in the list of idle Ms.
    Ends,
    /// The M stays. It is not in the list of idle Ms until it sleeps again.
    Stays,
    /// A timer is due, and the M takes this idle P to fire it. The M is spinning.
    Fires(&'static P),
    /// The M checks and sleeps again: no timer is due, or no P is idle and an M that has a P fires
    /// the timer.
    ChecksAgain,
    /// Another thread has just taken the M out of the list of idle Ms, and wakes it.
    IsWoken,
}

fn acquire_p_and_record_node(on: OnM<'_>, p: &'static P) {
    on.acquire_p(p);
    p.node.store(steal::current_node(), Ordering::Relaxed);
}

/// Decides what an M does whose sleep has timed out. `for_timer` is set if the sleep ended for a
/// timer or for virtual time, and not because [`IDLE_TIME`] has passed.
fn handle_timeout(on: OnM<'_>, for_timer: bool) -> TimeoutOutcome {
    let m = on.m();
    let mut locked = SCHED.lock.lock();
    let polled = poller_role::give_up_poll_role(&mut locked, m);
    if !locked.idle_ms.remove(m) {
        return TimeoutOutcome::IsWoken;
    }
    // The timekeeper and the poller stay: some M must have these roles.
    let kept = timekeeper::resign_timekeeper(&mut locked, m) | polled;
    if for_timer {
        let p = timekeeper::are_due().then(|| locked.pop_idle_p()).flatten();
        drop(locked);
        return p.map_or(TimeoutOutcome::ChecksAgain, |p| {
            wake::start_spinning(m);
            TimeoutOutcome::Fires(p)
        });
    }
    // Keep one M more than there are Ps, not counting Ms that cannot take a P: the next hand-off
    // must not wait for a new thread.
    let away = (locked.locked_ms + locked.blocked_ms) as usize;
    if kept || locked.ms as usize <= SCHED.procs() + 1 + away || m.is_main() {
        return TimeoutOutcome::Stays;
    }
    locked.ms -= 1;
    TimeoutOutcome::Ends
}

/// Returns unused memory to the system: stacks in the caches of idle Ps, unused stacks in the
/// depot, and free memory of the allocator.
fn give_memory_back() {
    let mut locked = SCHED.lock.lock();
    locked.for_each_idle_cache(stacks::give_up_stacks);
    let all_idle = SCHED.is_idle();
    drop(locked);
    gosched_fiber::stack::trim(if all_idle { Duration::ZERO } else { IDLE_TIME });
    gosched_alloc::release_memory();
}
