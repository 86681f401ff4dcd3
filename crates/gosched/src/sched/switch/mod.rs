//! From one goroutine to the next: directly where the next one is at hand, else by way of g0.
//!
//! The next G is picked on the departing goroutine's stack, and the switch goes straight to it: one
//! write of the thread pointer. What is to become of the departing one ([`Departure`]) is left with
//! the M and done *after* the switch, by whoever runs then: until its registers are saved and its
//! thread pointer is out of force, nobody else may run it.
//!
//! On the way from `depart` to `publish_departure` preemption is off, nothing is allocated, nothing panics.
//! Where an earlier step of `find_runnable` could apply (the world stops, it is the 61st time, the M
//! is locked to a goroutine, or was changed by one), or the next G has no stack yet and none is at hand, g0 takes over.

pub(crate) mod boundary;
pub(crate) mod checks;
pub(crate) mod first_frame;
pub(crate) mod no_preempt;
pub(crate) mod park;
pub(crate) mod preempt;
pub(crate) mod prepared;
pub(crate) mod spawn;
pub(crate) mod spill;
pub(crate) mod stacks;
pub(crate) mod stopped_m;
pub(crate) mod syscall;

use crate::gmp::g::G;
use crate::gmp::m::{Departure, M};
use crate::gmp::p::P;
use crate::gmp::run_queue::TimeSlice;
use crate::gmp::state::GState;
use crate::gmp::track::TRACKING_PERIOD;
use crate::probe;
use crate::sched::state::global::{self, SCHED};
use crate::sched::state::{poller_role, seeded, timekeeper};
use crate::sched::wake;
use gosched_fiber::arch::{self, SavedContext};
use std::sync::atomic::Ordering;

/// Where the next one to run comes from.
enum Next {
    /// Here it is.
    Found(&'static G),
    /// The P's own queue is empty.
    Empty,
    /// g0 must look.
    AskG0,
}

/// Leaves the calling goroutine for the next one of its P. Returns when it is resumed, perhaps on
/// another M. Preemption is off before and after.
#[inline(always)]
pub(crate) fn depart(m: &'static M, g: &'static G, departure: Departure) {
    match m.p().map_or(Next::AskG0, |p| pick_next(m, p, track)) {
        Next::Found(next) => switch_to_g(m, g, next, departure),
        Next::Empty | Next::AskG0 => switch_to_g0(m, g, departure),
    }
}

/// Lets others run: to the tail of the global queue, and the next one from the P's own queue, or
/// from the head of the global one. Preemption is off before and after.
/// Go: gosched_m.
#[inline(always)]
pub(crate) fn depart_yielding(m: &'static M, g: &'static G) {
    let Some(p) = m.p() else {
        return switch_to_g0(m, g, Departure::Yield { g, held: false });
    };
    match pick_next(m, p, track_yielding) {
        Next::Found(next) => switch_to_g(m, g, next, Departure::Yield { g, held: false }),
        Next::AskG0 => switch_to_g0(m, g, Departure::Yield { g, held: false }),
        // It would come back as the head of the global queue.
        Next::Empty if SCHED.queued.load(Ordering::Relaxed) == 0 => p.start_slice(),
        Next::Empty => {
            // One hold for both: released when this goroutine is at the tail.
            SCHED.lock.acquire();
            let next = refill_from_global(p);
            match next {
                Some(next) => {
                    p.start_slice();
                    switch_to_g(m, g, next, Departure::Yield { g, held: true });
                }
                None => {
                    // SAFETY: held — above.
                    unsafe { SCHED.lock.release() };
                    p.start_slice();
                }
            }
        }
    }
}

/// A P's share of the global queue: the first to be run, the rest into its own queue, which is
/// empty. The lock is held.
/// Go: globrunqgetbatch.
pub(crate) fn refill_from_global(p: &'static P) -> Option<&'static G> {
    // SAFETY: held — promised by the caller; no other reference is in use.
    let locked = unsafe { SCHED.lock.value() };
    let beside = locked.queue.pop_stopped_or_interrupted();
    let first = beside.or_else(|| spill::refill(&p.queue, locked.queue.any(), SCHED.procs()));
    locked.publish_length();
    first
}

/// `if_tracked` is for the few that are. True: g0 must look.
#[inline(always)]
fn pick_next(
    m: &'static M,
    p: &'static P,
    if_tracked: impl Fn(&'static M, &'static P) -> bool,
) -> Next {
    let due = p.tick().is_multiple_of(global::GLOBAL_QUEUE_INTERVAL_TICKS)
        && (SCHED.queued.load(Ordering::Relaxed) > 0 || poller_role::should_poll());
    if due
        || timekeeper::are_due()
        || (p.count_departure() && if_tracked(m, p))
        || SCHED.attention() != 0
        || m.carrier.slow_path_flags() != 0
    {
        return Next::AskG0;
    }
    match p.queue.take() {
        None => Next::Empty,
        Some((g, slice)) => {
            start_or_inherit_slice(p, slice);
            Next::Found(g)
        }
    }
}

/// The departing goroutine is one of the few that are tracked. True: the P has been a pair's for long enough,
/// which is looked at as seldom.
#[cold]
#[inline(never)]
fn track(m: &'static M, p: &'static P) -> bool {
    p.set_departures_until_tracked(TRACKING_PERIOD - 1);
    if let Some(g) = m.curg().filter(|_| probe::ENABLED) {
        g.track();
    }
    p.has_spent_pair_budget()
}

/// As [`track`], for one that yields. Where there is nobody else it stays, and must not be marked: its next wait
/// would stand for as many. Whoever is marked leaves, to g0, even if somebody takes the others meanwhile.
#[cold]
#[inline(never)]
fn track_yielding(m: &'static M, p: &'static P) -> bool {
    let is_alone = p.queue.is_empty() && SCHED.queued.load(Ordering::Relaxed) == 0;
    if is_alone {
        p.set_departures_until_tracked(TRACKING_PERIOD - 1);
        return p.has_spent_pair_budget();
    }
    track(m, p) || probe::ENABLED
}

/// The slice that a G from the P's own queue runs in.
/// Go: inheritTime.
#[inline]
pub(crate) fn start_or_inherit_slice(p: &'static P, slice: TimeSlice) {
    match slice {
        TimeSlice::New => p.start_slice(),
        TimeSlice::Inherited => p.inherit_slice(),
    }
}

/// Leaves `g` for `next`, which nobody else has.
/// Go: none: Go always goes through g0.
#[inline(always)]
fn switch_to_g(m: &'static M, g: &'static G, next: &'static G, departure: Departure) {
    let direct = next.pinned.load(Ordering::Relaxed).is_null()
        && can_publish_quickly(m, departure)
        && stacks::ensure_cached_stack(m, next);
    if !direct {
        m.set_picked(next);
        return switch_to_g0(m, g, departure);
    }
    next.transition(GState::Runnable, GState::Running);
    m.set_curg(Some(next));
    let to = saved(next);
    // SAFETY: to — a G that was runnable, and is ours alone now.
    unsafe { switch(m, saved(g), to, departure) };
}

/// Whether the departure can be published on a goroutine's stack: no system call, no lock that may
/// be held for long.
#[inline]
fn can_publish_quickly(m: &'static M, departure: Departure) -> bool {
    !matches!(departure, Departure::Exit { .. }) || stacks::can_recycle_without_lock(m)
}

/// Leaves `g` for the scheduler.
/// Go: mcall.
#[inline(always)]
pub(crate) fn switch_to_g0(m: &'static M, g: &'static G, departure: Departure) {
    m.set_curg(None);
    // SAFETY: to — g0 waits in `execute`, for this M alone.
    unsafe { switch(m, saved(g), m.g0.as_ptr(), departure) };
}

/// From g0 to a goroutine; returns when g0 is wanted again, with the departure published.
/// Go: execute.
pub(crate) fn execute(m: &'static M, g: &'static G) {
    g.transition(GState::Runnable, GState::Running);
    m.set_curg(Some(g));
    // SAFETY: to — a G that was runnable, and is ours alone now.
    unsafe { switch(m, m.g0.as_ptr(), saved(g), Departure::None) };
}

/// # Safety
/// - **to**: as for [`arch::switch`].
#[inline(always)]
unsafe fn switch(
    m: &'static M,
    from: *mut SavedContext,
    to: *mut SavedContext,
    departure: Departure,
) {
    // SAFETY: owner — the M's own thread, and nothing is left to publish.
    unsafe { m.pending_departure.as_ptr().write(departure) };
    // SAFETY: to — promised by the caller; from — the caller's own, in a record that is never freed;
    // fs — each G's own, or the M's.
    unsafe { arch::switch(from, to, 0) };
    publish_departure();
}

/// Does what is left to do for whoever was left last on the M that the caller runs on. The first
/// thing after each switch.
/// Go: park_m, goschedImpl, goyield_m, gdestroy: what the function of mcall does.
#[inline(always)]
pub(crate) fn publish_departure() {
    // SAFETY: carried — the caller was just switched to, by an M.
    let m = unsafe { M::current() };
    // SAFETY: owner — the M's own thread.
    let departure = unsafe { m.pending_departure.as_ptr().replace(Departure::None) };
    match departure {
        Departure::None => {}
        Departure::Park { g, commit, data } => {
            g.transition(GState::Running, GState::Waiting);
            // SAFETY: `park` gave the two together.
            if !unsafe { commit(g, data) } {
                g.transition(GState::Waiting, GState::Runnable);
                push_next(m, g);
                wake::wake_if_idle();
            }
        }
        Departure::Yield { g, held } => {
            g.transition(GState::Running, GState::Runnable);
            if !held {
                SCHED.lock.acquire();
            }
            // SAFETY: held — above, or by the departing goroutine.
            unsafe { SCHED.lock.value() }.push(g);
            // SAFETY: held — as above.
            unsafe { SCHED.lock.release() };
            wake::wake_if_idle();
        }
        Departure::YieldLocally { g } => {
            g.transition(GState::Running, GState::Runnable);
            push(m, g);
            wake::wake_if_idle();
        }
        Departure::Stopped { g } => {
            g.transition(GState::Running, GState::Runnable);
            push_next(m, g);
        }
        Departure::Interrupted { g } => {
            g.transition(GState::Running, GState::Runnable);
            SCHED.lock.lock().push_interrupted(g);
            wake::wake_if_idle();
        }
        Departure::Exit { g } => stacks::recycle_g(m, g),
        Departure::NoStack { g } => stacks::drop_stack_and_queue(g),
    }
}

/// Makes `g` the next to run on the M's P; what was next goes to the tail.
/// Go: runqput(next = true).
#[inline]
pub(crate) fn push_next(m: &'static M, g: &'static G) {
    let Some(p) = m.p() else { return push_global(g) };
    if seeded::draw_push_to_tail(m) {
        return push_local(p, g);
    }
    if let Some(kicked) = p.queue.push_next(g) {
        push_local(p, kicked);
    }
}

/// To the tail of the M's P's queue.
/// Go: runqput(next = false).
pub(crate) fn push(m: &'static M, g: &'static G) {
    match m.p() {
        Some(p) => push_local(p, g),
        None => push_global(g),
    }
}

#[inline]
fn push_local(p: &'static P, g: &'static G) {
    if !p.queue.push(g) {
        spill_to_global(p, g);
    }
}

/// Half of a full queue, and the one that found no place, to the global queue: one hold of the lock.
/// Go: runqputslow.
#[cold]
#[inline(never)]
fn spill_to_global(p: &'static P, g: &'static G) {
    spill::spill_half(&p.queue, g, |half| {
        let mut locked = SCHED.lock.lock();
        half.iter().flatten().for_each(|g| locked.queue.push_back(g));
        locked.push(g);
    });
}

/// Go: globrunqput.
pub(crate) fn push_global(g: &'static G) {
    SCHED.lock.lock().push(g);
}

/// Where a G's registers are while it does not run.
#[inline(always)]
pub(crate) fn saved(g: &'static G) -> *mut SavedContext {
    g.saved.as_ptr()
}
