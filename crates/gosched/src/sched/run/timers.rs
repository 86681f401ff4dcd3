//! When timers are fired, and by whom.
//!
//! Each P has a heap, and those without a P share one. [`timekeeper::EARLIEST`] is when the first of all timers is
//! due, or earlier: every M looks at it when it looks for work, and between goroutines; whoever finds
//! that the time has come fires what is due in all heaps.
//!
//! When Ms sleep, one of them is the *timekeeper*: it sleeps no longer than until the first timer. Adding an
//! earlier timer wakes it. Where Ps are idle and there is no timekeeper, adding one wakes an M that looks
//! for work in vain and becomes the timekeeper. Where no P is idle sysmon is there in time (`monitor::sysmon`).
//!
//! Who adds: 1. puts the timer into a heap; 2. counts [`ADD_COUNT`] up; 3. lowers `EARLIEST`; 4. if that was
//! higher, looks at the timekeeper's time.
//! The timekeeper: 1. says until when it will sleep; 2. looks at `EARLIEST`; 3. sleeps.
//! Who fired: 1. looks at `ADD_COUNT`; 2. looks at all heaps, and sets `EARLIEST`; 3. starts over if `ADD_COUNT`
//! has changed.
//!
//! Steps 3 and 4 of who adds, and 1 and 2 of the timekeeper, are of one order for all: one sees the other.

use crate::gmp::list::GList;
use crate::gmp::m::M;
use crate::gmp::timer::{NEVER, Timer, TimerHeap};
use crate::sched::run::poll;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{poller_role, sysmon_alarm, timekeeper};
use crate::sched::threads::wait;
use crate::sched::{switch, wake};
use crate::sys::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The heap of those who have no P.
static GLOBAL_HEAP: TimerHeap = TimerHeap::new();

/// How many timers were ever added.
static ADD_COUNT: AtomicU64 = AtomicU64::new(0);

/// How many there are of those who have no P.
pub(crate) fn num_global_timers() -> usize {
    GLOBAL_HEAP.len()
}

/// Whether there is one that can make a goroutine or a thread ready. Inside the runtime.
pub(crate) fn can_wake() -> bool {
    all_heaps().any(TimerHeap::has_waking)
}

/// Puts a timer into the heap of the M's P, or of those without. Inside the runtime.
///
/// # Errors
/// The heap has no room: see [`TimerHeap::grow`].
///
/// # Safety
/// - **alive**: as for [`TimerHeap::insert`].
pub(crate) unsafe fn insert(
    m: Option<&'static M>,
    timer: &Timer,
    when: u64,
) -> Result<(), &'static TimerHeap> {
    let heap = m.and_then(M::p).map_or(&GLOBAL_HEAP, |p| &p.timers);
    // SAFETY: alive — promised by the caller.
    if !unsafe { heap.insert(timer, when) } {
        return Err(heap);
    }
    // PAIR timers: one order for this, the next, and the timekeeper's.
    ADD_COUNT.fetch_add(1, Ordering::SeqCst);
    // PAIR timers: as above.
    if timekeeper::EARLIEST.fetch_min(when, Ordering::SeqCst) > when {
        wake_timekeeper(when);
    }
    Ok(())
}

/// There is a timer earlier than all others.
/// Go: wakeNetPoller.
fn wake_timekeeper(when: u64) {
    sysmon_alarm::wake_for_timer(when);
    // PAIR timers: as above.
    match timekeeper::TIMEKEEPER_WAKES_AT.load(Ordering::SeqCst) {
        0 => wake::wake_if_idle(),
        until if until > when => {
            let mut locked = SCHED.lock.lock();
            if let Some(timekeeper) = locked.timekeeper {
                // It looks again, without a P.
                timekeeper::resign_timekeeper(&mut locked, timekeeper);
                poller_role::mark_poller_leaving(&locked, timekeeper);
                locked.idle_ms.remove(timekeeper);
                drop(locked);
                poller_role::wake_m(timekeeper);
            }
        }
        _ => {}
    }
}

/// How long an M that is about to sleep may, as the timekeeper; `None`: there is one, or there is nothing to
/// keep, or no P to fire what is due with. Under the lock.
pub(crate) fn become_timekeeper(locked: &mut Locked, m: &'static M) -> Option<Duration> {
    // Virtual time does not pass while an M sleeps.
    if locked.timekeeper.is_some() || clock::is_virtual() {
        return None;
    }
    let mut earliest = refresh_earliest();
    loop {
        let now = clock::now();
        // Those who have the Ps look for themselves, before they sleep at the latest.
        if earliest == NEVER || (earliest <= now && locked.idle_ps.is_empty()) {
            timekeeper::resign_timekeeper(locked, m);
            return None;
        }
        locked.timekeeper = Some(m);
        // PAIR timers: as above.
        timekeeper::TIMEKEEPER_WAKES_AT.store(earliest, Ordering::SeqCst);
        // PAIR timers: as above.
        let again = timekeeper::EARLIEST.load(Ordering::SeqCst);
        if again >= earliest {
            return Some(Duration::from_nanos(earliest.saturating_sub(now)));
        }
        earliest = again;
    }
}

/// Everything sleeps, in virtual time: then it is the time of the first timer that can wake somebody. Others that are due
/// before are late, as with Go, where they are in no heap. False: there is none. Under the lock.
/// Go: faketime in checkdead.
pub(crate) fn advance_virtual_time(_locked: &Locked) -> bool {
    refresh_earliest();
    let next = all_heaps().map(TimerHeap::next_waking).min().unwrap_or(NEVER);
    if next != NEVER {
        clock::advance_to(next);
    }
    next != NEVER
}

/// So many are fired before others get a turn.
const FIRE_BATCH: usize = 64;

/// Fires some of what is due, on g0 of an M with a P. True: a goroutine that it has woken is the next to run.
/// Go: timers.check.
pub(crate) fn run_due(m: &'static M) -> bool {
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
    // The first one runs next, the others after it in the order of their times.
    let mut first = None;
    while let Some(g) = ready.pop_front() {
        if g.is_thread() {
            wait::ready(g);
            continue;
        }
        g.make_runnable();
        match first {
            None => first = Some(g),
            Some(_) => switch::push(m, g),
        }
    }
    if let Some(first) = first {
        switch::push_next(m, first);
        wake::wake_if_idle();
    }
    first.is_some()
}

/// Whether only sysmon is left to fire timers: every P is idle, and no M sleeps that could take one. All Ms are
/// locked to goroutines or blocked, and the system grants no more. Under the lock.
pub(crate) fn is_sysmon_needed(locked: &Locked) -> bool {
    SCHED.is_idle() && locked.idle_ms.is_empty() && !clock::is_virtual() && can_wake()
}

/// Fires some of what is due, by sysmon, where [`is_sysmon_needed`] says so.
pub(crate) fn run_due_by_sysmon() {
    if !timekeeper::are_due() || !SCHED.is_idle() || !is_sysmon_needed(&SCHED.lock.lock()) {
        return;
    }
    let (now, mut ready) = (clock::now(), GList::new());
    for heap in all_heaps().filter(|heap| heap.next() <= now) {
        heap.fire_due(now, FIRE_BATCH, &mut ready);
    }
    refresh_after_firing();
    poll::inject_last(ready);
}

/// Looks when the next timer is due. Between the look's two steps the timekeeper may have fallen asleep for too long.
fn refresh_after_firing() {
    let earliest = refresh_earliest();
    // PAIR timers: as above.
    let until = timekeeper::TIMEKEEPER_WAKES_AT.load(Ordering::SeqCst);
    if until > earliest {
        wake_timekeeper(earliest);
    }
}

/// Looks when the first timer is due, and leaves that in [`timekeeper::EARLIEST`].
/// Go: timeSleepUntil.
fn refresh_earliest() -> u64 {
    loop {
        // PAIR timers: as above.
        let added = ADD_COUNT.load(Ordering::SeqCst);
        let earliest = all_heaps().map(TimerHeap::next).min().unwrap_or(NEVER);
        // PAIR timers: as above.
        timekeeper::EARLIEST.store(earliest, Ordering::SeqCst);
        // PAIR timers: as above.
        if ADD_COUNT.load(Ordering::SeqCst) == added {
            return earliest;
        }
    }
}

fn all_heaps() -> impl Iterator<Item = &'static TimerHeap> {
    SCHED.all_ps().map(|p| &p.timers).chain([&GLOBAL_HEAP])
}
