//! When timers fire, and which thread fires them.
//!
//! Each P has a heap, and all threads without a P share one. Every M checks when the first timer of
//! all heaps is due when it searches for work, and between two Gs. An M that finds a timer due
//! fires the due timers of all heaps.
//!
//! When Ms sleep, one of them is the *timekeeper*: it sleeps no longer than until the first timer
//! is due. Adding an earlier timer wakes it. If a P is idle and there is no timekeeper, adding a
//! timer wakes an M, which finds no work and becomes the timekeeper. If no P is idle, or if the
//! timekeeper has left to run a G, sysmon wakes in time (`monitor::sysmon`).
//! `protocol::timekeeping` states which thread does what in which order, and why no timer is
//! forgotten.
//!
//! Code here never grows a heap, because that allocates: its callers do.

use crate::gmp::list::GList;
use crate::gmp::m::M;
use crate::gmp::record::record;
use crate::gmp::timer::{NEVER, PlacedTimer, TimerHeap};
use crate::gmp::token::OwnedP;
use crate::probe::event::EventKind;
use crate::protocol::timekeeping::{Refreshed, WakeForTimer};
use crate::sched::run::poll;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::timekeeper::{self, TIMEKEEPING};
use crate::sched::state::{poller_role, sysmon_alarm, thread_requests};
use crate::sched::switch::submit::{self, Submission};
use crate::sched::threads::wait;
use crate::sched::wake;
use crate::sys::clock;
use crate::sys::forked;
use std::time::Duration;

/// The heap for timers that are added without a P.
static GLOBAL_HEAP: TimerHeap = TimerHeap::new();

/// Returns how many timers are in the heap for threads without a P.
pub(crate) fn num_global_timers() -> usize {
    GLOBAL_HEAP.len()
}

/// Returns whether any timer can make a G or a thread ready. Called inside the runtime.
pub(crate) fn can_wake() -> bool {
    all_heaps().any(TimerHeap::has_waking)
}

/// Adds a timer to the heap of the M's P, or to the heap for threads without a P. Called inside the
/// runtime.
///
/// # Errors
/// The heap is full. Call [`TimerHeap::grow`] on the returned heap and retry with the returned
/// timer.
pub(crate) fn insert<'t>(
    m: Option<&'static M>,
    timer: PlacedTimer<'t>,
    when: u64,
) -> Result<(), (&'static TimerHeap, PlacedTimer<'t>)> {
    let heap = m.and_then(M::p).map_or(&GLOBAL_HEAP, |p| &p.timers);
    heap.insert(timer, when).map_err(|timer| (heap, timer))?;
    if TIMEKEEPING.add(when) {
        wake_timekeeper(when);
    }
    Ok(())
}

/// Ensures that some thread wakes at `when`, the time of a timer that is earlier than all others.
/// Go: wakeNetPoller.
fn wake_timekeeper(when: u64) {
    if forked::is_child() {
        return; // the timekeeper and sysmon are in the parent
    }
    sysmon_alarm::wake_for_timer(when);
    match TIMEKEEPING.wake_for(when) {
        WakeForTimer::Nothing => {}
        WakeForTimer::IdleM => wake::wake_if_idle(),
        WakeForTimer::Timekeeper => {
            let mut locked = SCHED.lock.lock();
            if let Some(timekeeper) = locked.timekeeper {
                // The M is woken without a P, and checks the timers before it sleeps again.
                record(|| EventKind::WakeTimekeeper { m: timekeeper.id });
                timekeeper::resign_timekeeper(&mut locked, timekeeper);
                poller_role::mark_poller_leaving(&locked, timekeeper);
                locked.idle_ms.remove(timekeeper);
                drop(locked);
                poller_role::wake_m(timekeeper);
            }
        }
    }
}

/// Makes `m`, which is about to sleep, the timekeeper. Returns how long `m` may sleep. Returns
/// `None` if there is already a timekeeper, if there is no timer, or if a timer is due and no P is
/// idle to fire it. Called under the lock.
pub(crate) fn become_timekeeper(locked: &mut Locked, m: &'static M) -> Option<Duration> {
    // Virtual time does not advance while an M sleeps.
    if locked.timekeeper.is_some() || clock::is_virtual() {
        return None;
    }
    let Refreshed { earliest, has_lowered } = TIMEKEEPING.refresh(first);
    if has_lowered {
        // The thread that added the timer relies on this.
        sysmon_alarm::wake_for_timer(earliest);
    }
    let mut now = 0;
    let until = TIMEKEEPING.become_timekeeper(earliest, |earliest| {
        now = clock::now();
        // The Ms that have the Ps check the timers themselves, at the latest before they sleep.
        earliest != NEVER && (earliest > now || !locked.idle_ps.is_empty())
    })?;
    locked.timekeeper = Some(m);
    Some(Duration::from_nanos(until.saturating_sub(now)))
}

/// Advances virtual time to the first timer that can make a G or a thread ready. Returns false if
/// there is none. Earlier timers, which make nothing ready, fire late. (In Go, such timers are in
/// no heap.) Called under the lock when all Ms sleep.
/// Go: faketime in checkdead.
pub(crate) fn advance_virtual_time(_locked: &Locked) -> bool {
    TIMEKEEPING.refresh(first);
    let next = all_heaps().map(TimerHeap::next_waking).min().unwrap_or(NEVER);
    if next != NEVER {
        clock::advance_to(next);
    }
    next != NEVER
}

/// How many timers are fired at most before Gs run again.
const FIRE_BATCH: usize = 64;

/// Fires up to [`FIRE_BATCH`] due timers, on g0 of an M with a P. Returns whether a G was made
/// ready; the first such G is the next to run.
/// Go: timers.check.
pub(crate) fn run_due(mut p: OwnedP<'_>) -> bool {
    let now = clock::now();
    let mut ready = GList::new();
    let mut left = FIRE_BATCH;
    for heap in all_heaps() {
        if heap.next() <= now {
            left -= heap.fire_due(now, left, &mut ready);
        }
        if left == 0 {
            break;
        }
    }
    refresh_after_firing();
    record(|| EventKind::Timers { ready: ready.len() as u32 });
    // The first G runs next; the others follow in the order in which their timers fired.
    let mut first = None;
    while let Some(g) = ready.pop_front() {
        if g.is_thread() {
            wait::ready(g);
            continue;
        }
        g.make_runnable();
        match first {
            None => first = Some(g),
            Some(_) => submit::push(p.on_m(), g, Submission::Timer),
        }
    }
    if let Some(first) = first {
        submit::push_next(p.on_m(), first, Submission::Timer);
        wake::wake_if_idle();
    }
    first.is_some()
}

/// Returns whether only sysmon can fire timers for the idle Ps: no M sleeps that could take a P,
/// and every P is idle, or the system refuses more threads. This happens if all Ms are locked to
/// Gs, blocked or busy. Called under the lock.
pub(crate) fn is_sysmon_needed(locked: &Locked) -> bool {
    (SCHED.is_idle() || thread_requests::is_refused())
        && locked.idle_ms.is_empty()
        && !clock::is_virtual()
        && can_wake()
}

/// Fires due timers on sysmon's thread, if [`is_sysmon_needed`] returns true.
pub(crate) fn run_due_by_sysmon() {
    if !timekeeper::are_due()
        || SCHED.counts.idle_ps() == 0
        || !is_sysmon_needed(&SCHED.lock.lock())
    {
        return;
    }
    let (now, mut ready) = (clock::now(), GList::new());
    for heap in all_heaps().filter(|heap| heap.next() <= now) {
        heap.fire_due(now, FIRE_BATCH, &mut ready);
    }
    refresh_after_firing();
    record(|| EventKind::Timers { ready: ready.len() as u32 });
    poll::inject_last(ready, Submission::Timer);
}

/// Wakes an M, on sysmon's thread, if a timer is due, a P is idle and there is no timekeeper.
/// Go: sysmon, its test of timeSleepUntil.
pub(crate) fn wake_m_if_overdue() {
    if timekeeper::are_due() && TIMEKEEPING.is_timekeeper_missing() && !clock::is_virtual() {
        wake::wake_if_idle();
    }
}

/// Performs the steps of a firing thread after it has fired timers. See `protocol::timekeeping`.
fn refresh_after_firing() {
    if let Some(earliest) = TIMEKEEPING.refresh_after_firing(first) {
        wake_timekeeper(earliest);
    }
}

/// Returns the time of the first timer in all heaps; `NEVER` if there is none.
fn first() -> u64 {
    all_heaps().map(TimerHeap::next).min().unwrap_or(NEVER)
}

fn all_heaps() -> impl Iterator<Item = &'static TimerHeap> {
    SCHED.all_ps().map(|p| &p.timers).chain([&GLOBAL_HEAP])
}
