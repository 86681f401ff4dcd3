//! When timers are fired, and by whom.
//!
//! Each P has a heap, and those without a P share one. [`timekeeper::EARLIEST`] is when the first of all timers is
//! due, or earlier: every M looks at it when it looks for work, and between goroutines; whoever finds
//! that the time has come fires what is due in all heaps.
//!
//! When Ms sleep, one of them is the *keeper*: it sleeps no longer than until the first timer. Adding an
//! earlier timer wakes it. Where Ps are idle and there is no keeper, adding one wakes an M that looks
//! for work in vain and becomes the keeper. Where no P is idle the watcher is there in time (`monitor::sysmon`).
//!
//! Who adds: 1. puts the timer into a heap; 2. counts [`ADDED`] up; 3. lowers `EARLIEST`; 4. if that was
//! higher, looks at the keeper's time.
//! The keeper: 1. says until when it will sleep; 2. looks at `EARLIEST`; 3. sleeps.
//! Who fired: 1. looks at `ADDED`; 2. looks at all heaps, and sets `EARLIEST`; 3. starts over if `ADDED`
//! has changed.
//!
//! Steps 3 and 4 of who adds, and 1 and 2 of the keeper, are of one order for all: one sees the other.

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
static OUTSIDE: TimerHeap = TimerHeap::new();

/// How many timers were ever added.
static ADDED: AtomicU64 = AtomicU64::new(0);

/// How many there are of those who have no P.
pub(crate) fn outside() -> usize {
    OUTSIDE.len()
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
    let heap = m.and_then(M::p).map_or(&OUTSIDE, |p| &p.timers);
    // SAFETY: alive — promised by the caller.
    if !unsafe { heap.insert(timer, when) } {
        return Err(heap);
    }
    // PAIR timers: one order for this, the next, and the keeper's.
    ADDED.fetch_add(1, Ordering::SeqCst);
    // PAIR timers: as above.
    if timekeeper::EARLIEST.fetch_min(when, Ordering::SeqCst) > when {
        tell_keeper(when);
    }
    Ok(())
}

/// There is a timer earlier than all others.
fn tell_keeper(when: u64) {
    sysmon_alarm::tell_of_timer(when);
    // PAIR timers: as above.
    match timekeeper::KEPT_UNTIL.load(Ordering::SeqCst) {
        0 => wake::wake_if_idle(),
        until if until > when => {
            let mut locked = SCHED.lock.lock();
            if let Some(keeper) = locked.keeper {
                // It looks again, without a P.
                timekeeper::resign(&mut locked, keeper);
                poller_role::call_out(&locked, keeper);
                locked.idle_ms.remove(keeper);
                drop(locked);
                poller_role::wake_m(keeper);
            }
        }
        _ => {}
    }
}

/// How long an M that is about to sleep may, as the keeper; `None`: there is one, or there is nothing to
/// keep, or no P to fire what is due with. Under the lock.
pub(crate) fn keep(locked: &mut Locked, m: &'static M) -> Option<Duration> {
    // Virtual time does not pass while an M sleeps.
    if locked.keeper.is_some() || clock::is_virtual() {
        return None;
    }
    let mut earliest = look();
    loop {
        let now = clock::now();
        // Those who have the Ps look for themselves, before they sleep at the latest.
        if earliest == NEVER || (earliest <= now && locked.idle_ps.is_empty()) {
            timekeeper::resign(locked, m);
            return None;
        }
        locked.keeper = Some(m);
        // PAIR timers: as above.
        timekeeper::KEPT_UNTIL.store(earliest, Ordering::SeqCst);
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
pub(crate) fn jump(_locked: &Locked) -> bool {
    look();
    let next = all_heaps().map(TimerHeap::next_waking).min().unwrap_or(NEVER);
    if next != NEVER {
        clock::jump_to(next);
    }
    next != NEVER
}

/// So many are fired before others get a turn.
const AT_A_TIME: usize = 64;

/// Fires some of what is due, on g0 of an M with a P. True: a goroutine that it has woken is the next to run.
pub(crate) fn run_due(m: &'static M) -> bool {
    let now = clock::now();
    let mut ready = GList::new();
    let mut left = AT_A_TIME;
    for heap in all_heaps() {
        if heap.next() <= now {
            left -= heap.fire_due(now, left, &mut ready);
        }
        if left == 0 {
            break;
        }
    }
    look_after_firing();
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
pub(crate) fn need_sysmon(locked: &Locked) -> bool {
    SCHED.is_idle() && locked.idle_ms.is_empty() && !clock::is_virtual() && can_wake()
}

/// Fires some of what is due, by sysmon, where [`need_sysmon`] says so.
pub(crate) fn run_due_by_sysmon() {
    if !timekeeper::are_due() || !SCHED.is_idle() || !need_sysmon(&SCHED.lock.lock()) {
        return;
    }
    let (now, mut ready) = (clock::now(), GList::new());
    for heap in all_heaps().filter(|heap| heap.next() <= now) {
        heap.fire_due(now, AT_A_TIME, &mut ready);
    }
    look_after_firing();
    poll::push_last(ready);
}

/// Looks when the next timer is due. Between the look's two steps the keeper may have fallen asleep for too long.
fn look_after_firing() {
    let earliest = look();
    // PAIR timers: as above.
    let until = timekeeper::KEPT_UNTIL.load(Ordering::SeqCst);
    if until > earliest {
        tell_keeper(earliest);
    }
}

/// Looks when the first timer is due, and leaves that in [`timekeeper::EARLIEST`].
fn look() -> u64 {
    loop {
        // PAIR timers: as above.
        let added = ADDED.load(Ordering::SeqCst);
        let earliest = all_heaps().map(TimerHeap::next).min().unwrap_or(NEVER);
        // PAIR timers: as above.
        timekeeper::EARLIEST.store(earliest, Ordering::SeqCst);
        // PAIR timers: as above.
        if ADDED.load(Ordering::SeqCst) == added {
            return earliest;
        }
    }
}

fn all_heaps() -> impl Iterator<Item = &'static TimerHeap> {
    SCHED.all_ps().map(|p| &p.timers).chain([&OUTSIDE])
}
