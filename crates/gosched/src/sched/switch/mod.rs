//! Switches from one G to the next: directly if the P's own queue has the next G, otherwise through
//! g0.
//!
//! The departing G picks the next G on its own stack and switches straight to it, with one write of
//! the thread pointer. The [`Departure`] defines what happens to the departing G. It is stored in
//! the M and carried out *after* the switch, by the code that runs next on that M: no other M may
//! run the departing G until its registers are saved and its thread pointer is no longer loaded.
//!
//! From `depart` to `publish_departure`, preemption is off, nothing allocates and nothing panics.
//!
//! g0 takes over in these cases:
//!
//! - The M has no P, or the P's own queue is empty. (A G that yields then takes the next G from the
//!   global queue itself.)
//! - An earlier step of `find_runnable` may apply: the world stops, a timer is due, a check of the
//!   global queue or the poller is due (every 61st slice), a G must run before all others, or a
//!   pair of Gs has used up its budget.
//! - The G that yields is tracked.
//! - The M is locked to a G, or a G changed the M's signal mask.
//! - The next G is pinned, or it has no stack and the P's cache has none.
//! - The departing G exits, and recycling it needs a lock or a system call.
//!
//! Code here never steals, never polls and never fires a timer: `run` does all three, on g0.

pub(crate) mod boundary;
pub(crate) mod checks;
pub(crate) mod first_frame;
pub(crate) mod no_preempt;
pub(crate) mod park;
pub(crate) mod preempt;
pub(crate) mod prepared;
pub(crate) mod recorded;
pub(crate) mod spawn;
pub(crate) mod spill;
pub(crate) mod stacks;
pub(crate) mod stopped_m;
pub(crate) mod submit;
pub(crate) mod syscall;

use crate::gmp::g::G;
use crate::gmp::m::Departure;
use crate::gmp::state::GState;
use crate::gmp::token::{MayMove, OnM, OwnedP};
use crate::gmp::track::TRACKING_PERIOD;
use crate::probe;
use crate::probe::field::{GlobalReason, Place, Source};
use crate::protocol::run_queue::TimeSlice;
use crate::sched::state::global::{self, Locked, SCHED};
use crate::sched::state::{poller_role, timekeeper};
use crate::sched::switch::submit::{Submission, push, push_next};
use crate::sched::wake;
use crate::sys::debug_check::debug_check;
use gosched_fiber::arch::{self, SavedContext};
use std::sync::atomic::Ordering;

/// The result of [`pick_next`].
enum Next {
    /// The G to run next, taken from the queue.
    Found(&'static G),
    /// The P's own queue is empty.
    Empty,
    /// g0 must choose: an earlier step of `find_runnable` may apply.
    NeedsG0,
}

/// Switches from the calling G to the next G of its P. Returns when the calling G is resumed,
/// possibly on another M. Preemption is off on entry and on return.
#[inline(always)]
pub(crate) fn depart(mut may_move: MayMove<'_>, g: &'static G, departure: Departure) {
    match may_move.own_p().map_or(Next::NeedsG0, |p| pick_next(p, track)) {
        Next::Found(next) => switch_to_g(may_move, g, next, departure),
        Next::Empty | Next::NeedsG0 if probe::is_recording() => {
            depart_recorded(may_move, g, departure);
        }
        Next::Empty | Next::NeedsG0 => switch_to_g0_unrecorded(may_move, g, departure),
    }
}

/// Yields: puts the calling G at the tail of the global queue and switches to the next G, from the
/// P's own queue or from the head of the global queue. If both queues are empty, returns without a
/// switch, unless g0 must choose. Preemption is off on entry and on return.
/// Go: gosched_m.
#[inline(always)]
pub(crate) fn depart_yielding(mut may_move: MayMove<'_>, g: &'static G) {
    let Some(mut p) = may_move.own_p() else { return yield_through_g0(may_move, g) };
    match pick_next(p.lend(), track_yielding) {
        Next::Found(next) => switch_to_g(may_move, g, next, Departure::Yield { g, held: false }),
        Next::NeedsG0 => yield_through_g0(may_move, g),
        // With both queues empty, the calling G would be the next G itself.
        Next::Empty if SCHED.queued.load(Ordering::Relaxed) == 0 => p.start_slice(),
        Next::Empty => {
            let mut locked = SCHED.lock.lock();
            let next = take_share(&mut locked, p.lend());
            p.start_slice();
            if let Some(next) = next {
                // The lock is held across the switch: one critical section takes the next G from
                // the head, puts the calling G at the tail, and publishes the length.
                std::mem::forget(locked);
                switch_to_g(may_move, g, next, Departure::Yield { g, held: true });
            }
        }
    }
}

/// Yields through g0, which chooses the next G, unless only the recording of events has led here.
fn yield_through_g0(may_move: MayMove<'_>, g: &'static G) {
    if probe::is_recording() {
        return depart_yielding_recorded(may_move, g);
    }
    switch_to_g0_unrecorded(may_move, g, Departure::Yield { g, held: false });
}

/// As [`depart`], while events are recorded.
#[cold]
#[inline(never)]
fn depart_recorded(mut may_move: MayMove<'_>, g: &'static G, departure: Departure) {
    match may_move.own_p().and_then(take_next_recorded) {
        Some(next) => switch_to_g_recorded(may_move, g, next, departure),
        None => switch_to_g0_recorded(may_move, g, departure),
    }
}

/// As [`depart_yielding`], while events are recorded.
#[cold]
#[inline(never)]
fn depart_yielding_recorded(mut may_move: MayMove<'_>, g: &'static G) {
    let needs_g0 = may_move.own_p().is_none_or(needs_g0);
    if let Some(next) = may_move.own_p().and_then(take_next_recorded) {
        recorded::record_yield(may_move.on_m(), g, false);
        return switch_to_g_recorded(may_move, g, next, Departure::Yield { g, held: false });
    }
    let Some(mut p) = may_move.own_p().filter(|_| !needs_g0) else {
        recorded::record_yield(may_move.on_m(), g, false);
        return switch_to_g0_recorded(may_move, g, Departure::Yield { g, held: false });
    };
    if SCHED.queued.load(Ordering::Relaxed) == 0 {
        recorded::record_yield(p.on_m(), g, true);
        return p.start_slice();
    }
    let mut locked = SCHED.lock.lock();
    let next = take_share_recorded(&mut locked, p.lend());
    p.start_slice();
    recorded::record_yield(p.on_m(), g, next.is_none());
    if let Some(next) = next {
        p.on_m().set_source(Source::Global);
        std::mem::forget(locked);
        switch_to_g_recorded(may_move, g, next, Departure::Yield { g, held: true });
    }
}

/// Takes the next G from the P's own queue, and starts or continues a slice. Returns `None` if the
/// queue is empty, or if g0 must choose.
fn take_next_recorded(mut p: OwnedP<'_>) -> Option<&'static G> {
    if needs_g0(p.lend()) {
        return None;
    }
    let (g, slice, source) = recorded::take(p.lend())?;
    p.on_m().set_source(source);
    start_or_inherit_slice(p, slice);
    Some(g)
}

/// As [`switch_to_g`], while events are recorded.
fn switch_to_g_recorded(
    mut may_move: MayMove<'_>,
    g: &'static G,
    next: &'static G,
    departure: Departure,
) {
    if !can_switch_to_g(may_move.on_m(), next, &departure) {
        may_move.set_picked(next);
        return switch_to_g0(may_move, g, departure);
    }
    let departure = recorded::record_departure(may_move.on_m(), departure);
    recorded::record_run(may_move.on_m(), next);
    switch_directly(may_move, g, next, departure);
}

/// Takes the P's share of the global queue: returns the first G and puts the rest into the P's own
/// queue, which must be empty.
/// Go: globrunqgetbatch.
pub(crate) fn refill_from_global(locked: &mut Locked, p: OwnedP<'_>) -> Option<&'static G> {
    let first =
        if probe::is_recording() { take_share_recorded(locked, p) } else { take_share(locked, p) };
    locked.publish_take(first)
}

/// As [`refill_from_global`], but does not publish the length of the global queue.
#[inline]
fn take_share(locked: &mut Locked, p: OwnedP<'_>) -> Option<&'static G> {
    let beside = locked.queue.pop_stopped_or_interrupted();
    beside.or_else(|| spill::refill(p.queue(), locked.queue.any(), SCHED.procs()))
}

/// As [`take_share`], while events are recorded.
#[cold]
#[inline(never)]
fn take_share_recorded(locked: &mut Locked, p: OwnedP<'_>) -> Option<&'static G> {
    let before = locked.queue.len();
    let beside = locked.queue.pop_stopped_or_interrupted();
    let why = if beside.is_some() { GlobalReason::First } else { GlobalReason::Empty };
    let first = beside.or_else(|| spill::refill(p.queue(), locked.queue.any(), SCHED.procs()));
    recorded::record_take(p, first, why, before, locked.queue.len());
    first
}

/// Takes the next G from the P's own queue, or returns [`Next::NeedsG0`] if g0 must choose. Calls
/// `if_tracked` for each tracked departure; `if_tracked` returns whether g0 must choose.
#[inline(always)]
fn pick_next(mut p: OwnedP<'_>, if_tracked: impl Fn(OwnedP<'_>) -> bool) -> Next {
    if is_global_check_due(p.lend())
        || timekeeper::are_due()
        || (p.count_departure() && if_tracked(p.lend()))
        || SCHED.attention.is_any_set()
        || p.on_m().carrier.slow_path_flags() != 0
    {
        return Next::NeedsG0;
    }
    match p.queue().take() {
        None => Next::Empty,
        Some((g, slice)) => {
            start_or_inherit_slice(p, slice);
            Next::Found(g)
        }
    }
}

/// Returns whether this is the slice before which the global queue or the poller is checked, and
/// there is something to check.
#[inline(always)]
fn is_global_check_due(p: OwnedP<'_>) -> bool {
    p.tick().is_multiple_of(global::GLOBAL_QUEUE_INTERVAL_TICKS)
        && (SCHED.queued.load(Ordering::Relaxed) > 0 || poller_role::should_poll())
}

/// Returns whether g0 must choose the next G, as [`pick_next`] does, while events are recorded.
fn needs_g0(mut p: OwnedP<'_>) -> bool {
    is_global_check_due(p.lend())
        || timekeeper::are_due()
        || p.has_spent_pair_budget()
        || SCHED.attention.must_search()
        || p.on_m().carrier.slow_path_flags() != 0
}

/// Marks the departing G as tracked. Returns whether a pair of Gs has used up its budget on this P;
/// checking once per tracked departure is sufficient.
#[cold]
#[inline(never)]
fn track(mut p: OwnedP<'_>) -> bool {
    p.set_departures_until_tracked(TRACKING_PERIOD - 1);
    if let Some(g) = p.on_m().curg().filter(|_| probe::ENABLED) {
        g.track();
    }
    p.has_spent_pair_budget()
}

/// Like [`track`], for a G that yields. If no other G is queued, the G does not leave and is not
/// marked: the mark would measure a later wait instead. A marked G always leaves, through g0, even
/// if another P steals the queued Gs meanwhile.
#[cold]
#[inline(never)]
fn track_yielding(p: OwnedP<'_>) -> bool {
    let is_alone = p.is_queue_empty() && SCHED.queued.load(Ordering::Relaxed) == 0;
    if is_alone {
        p.set_departures_until_tracked(TRACKING_PERIOD - 1);
        return p.has_spent_pair_budget();
    }
    track(p) || probe::ENABLED
}

/// Starts a new slice for a G from the P's own queue, or continues the current one.
/// Go: inheritTime.
#[inline]
pub(crate) fn start_or_inherit_slice(p: OwnedP<'_>, slice: TimeSlice) {
    match slice {
        TimeSlice::New => p.start_slice(),
        TimeSlice::Inherited => p.inherit_slice(),
    }
}

/// Switches from `g` to `next`, which the caller took from a queue and owns.
/// Go: none: Go always goes through g0.
#[inline(always)]
fn switch_to_g(mut may_move: MayMove<'_>, g: &'static G, next: &'static G, departure: Departure) {
    if !can_switch_to_g(may_move.on_m(), next, &departure) {
        may_move.set_picked(next);
        return switch_to_g0(may_move, g, departure);
    }
    switch_directly(may_move, g, next, departure);
}

/// Returns whether `next` can run without g0 in between.
#[inline(always)]
fn can_switch_to_g(mut on: OnM<'_>, next: &'static G, departure: &Departure) -> bool {
    !next.pinned.is_pinned()
        && can_publish_quickly(on.lend(), departure)
        && stacks::ensure_cached_stack(on, next)
}

/// Switches from `g` to `next`, for which [`can_switch_to_g`] has returned true.
#[inline(always)]
fn switch_directly(
    mut may_move: MayMove<'_>,
    g: &'static G,
    next: &'static G,
    departure: Departure,
) {
    next.transition(GState::Runnable, GState::Running);
    may_move.set_curg(Some(next));
    let to = saved(next);
    // SAFETY: to — `next` was runnable, and this M alone owns it.
    unsafe { switch(may_move.on_m(), saved(g), to, departure) };
}

/// Returns whether the departure can be published on another G's stack: without a system call and
/// without a lock that may be held for long.
#[inline]
fn can_publish_quickly(on: OnM<'_>, departure: &Departure) -> bool {
    !matches!(departure, Departure::Exit { .. }) || stacks::can_recycle_without_lock(on)
}

/// Switches from `g` to g0.
/// Go: mcall.
#[inline(always)]
pub(crate) fn switch_to_g0(may_move: MayMove<'_>, g: &'static G, departure: Departure) {
    if probe::is_recording() {
        return switch_to_g0_recorded(may_move, g, departure);
    }
    switch_to_g0_unrecorded(may_move, g, departure);
}

/// As [`switch_to_g0`], for a caller that has tested whether events are recorded.
#[inline(always)]
fn switch_to_g0_unrecorded(mut may_move: MayMove<'_>, g: &'static G, departure: Departure) {
    may_move.set_curg(None);
    let to = may_move.g0.as_ptr();
    // SAFETY: to — g0 waits in `execute`, and only this M resumes it.
    unsafe { switch(may_move.on_m(), saved(g), to, departure) };
}

/// As [`switch_to_g0`], while events are recorded.
#[cold]
#[inline(never)]
fn switch_to_g0_recorded(mut may_move: MayMove<'_>, g: &'static G, departure: Departure) {
    let departure = recorded::record_departure(may_move.on_m(), departure);
    switch_to_g0_unrecorded(may_move, g, departure);
}

/// Switches from g0 to `g`. Returns when the M is back on g0 and the departure is published.
/// Go: execute.
pub(crate) fn execute(mut on: OnM<'_>, g: &'static G) {
    if probe::is_recording() {
        recorded::record_run(on.lend(), g);
    }
    g.transition(GState::Runnable, GState::Running);
    on.set_curg(Some(g));
    let from = on.g0.as_ptr();
    // SAFETY: to — `g` was runnable, and this M alone owns it.
    unsafe { switch(on, from, saved(g), Departure::None) };
}

/// Stores the departure in the M and switches. When `from` is resumed, publishes the departure that
/// is then pending.
///
/// # Safety
/// - **to**: as for [`arch::switch`].
#[inline(always)]
unsafe fn switch(
    mut on: OnM<'_>,
    from: *mut SavedContext,
    to: *mut SavedContext,
    departure: Departure,
) {
    debug_check!(
        on.carrier.preempt_disable_count() == 1,
        "a switch on M{}, where preemption was turned off {} times",
        on.id,
        on.carrier.preempt_disable_count()
    );
    on.set_departure(departure);
    // SAFETY: to — promised by the caller; from — the caller's own context, in a record that is
    // never freed; fs — each G has its own thread pointer, and so has the M.
    unsafe { arch::switch(from, to, 0) };
    publish_departure();
}

/// Carries out the pending [`Departure`] of the M that the caller runs on. Must be called first
/// after each switch.
/// Go: park_m, goschedImpl, goyield_m, gdestroy: what the function of mcall does.
#[inline(always)]
pub(crate) fn publish_departure() {
    // SAFETY: carried — an M switched to the caller; only — the code that switched away has given
    // or lent its token to the switch.
    let mut on = unsafe { OnM::current() };
    match on.take_departure() {
        Departure::None => {}
        Departure::Park { g, commit } => {
            g.transition(GState::Running, GState::Waiting);
            if !commit.run(g) {
                g.transition(GState::Waiting, GState::Runnable);
                push_next(on, g, Submission::NoWait);
                wake::wake_if_idle();
            }
        }
        Departure::RecordedYield { g, held } => publish_recorded_yield(on, g, held),
        Departure::Yield { g, held } => {
            g.transition(GState::Running, GState::Runnable);
            if !held {
                SCHED.lock.acquire();
            }
            // SAFETY: held — acquired above, or by the departing G before the switch.
            unsafe { SCHED.lock.value() }.push(g);
            // SAFETY: held — as above.
            unsafe { SCHED.lock.release() };
            wake::wake_if_idle();
        }
        Departure::YieldLocally { g } => {
            g.transition(GState::Running, GState::Runnable);
            push(on, g, Submission::Requeue);
            wake::wake_if_idle();
        }
        Departure::Stopped { g } => {
            g.transition(GState::Running, GState::Runnable);
            push_next(on, g, Submission::Requeue);
        }
        Departure::Interrupted { g } => {
            g.transition(GState::Running, GState::Runnable);
            let mut locked = SCHED.lock.lock();
            if probe::is_recording() {
                recorded::record_enqueue(on.lend(), g, Place::GlobalFirst);
            }
            locked.push_interrupted(g);
            drop(locked);
            wake::wake_if_idle();
        }
        Departure::Exit { g } => stacks::recycle_g(on, g),
        Departure::NoStack { g } => stacks::drop_stack_and_queue(g),
    }
}

/// Publishes [`Departure::RecordedYield`].
#[cold]
#[inline(never)]
fn publish_recorded_yield(on: OnM<'_>, g: &'static G, held: bool) {
    g.transition(GState::Running, GState::Runnable);
    if !held {
        SCHED.lock.acquire();
    }
    recorded::record_enqueue(on, g, Place::Global);
    // SAFETY: held — acquired above, or by the departing G before the switch.
    unsafe { SCHED.lock.value() }.push(g);
    // SAFETY: held — as above.
    unsafe { SCHED.lock.release() };
    wake::wake_if_idle();
}

/// Returns where the registers of `g` are saved while it does not run.
#[inline(always)]
pub(crate) fn saved(g: &'static G) -> *mut SavedContext {
    g.saved.as_ptr()
}
