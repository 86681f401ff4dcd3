//! Finds the next G to run: in Go's order, with extra steps for interrupted Gs, for Gs that a timer
//! made ready, and for Gs that wait behind a pair of Gs that keep making each other ready. This
//! module never switches to the G that it finds: `schedule` does.

use crate::gmp::g::G;
use crate::gmp::token::{OnM, OwnedP};
use crate::probe;
use crate::probe::field::{GlobalReason, Source};
use crate::protocol::attention::AttentionFlag::{Interrupted, TooManyStopped};
use crate::sched::run::{idle, poll, steal, timers};
use crate::sched::state::global::{GLOBAL_QUEUE_INTERVAL_TICKS, Locked, SCHED};
use crate::sched::state::{poller_role, seeded, stopping, timekeeper};
use crate::sched::switch::{recorded, refill_from_global, start_or_inherit_slice};
use crate::sched::wake;
use std::sync::atomic::Ordering;

/// Returns the next G to run. Called by an M on g0; sleeps until a G is runnable. Returns `None` if
/// the M must exit; the M then has no P.
/// Go: findRunnable.
pub(crate) fn find_runnable(mut on: OnM<'_>) -> Option<&'static G> {
    loop {
        if stopping::is_stopping()
            && let Some(p) = on.own_p()
        {
            stopping::release_p_for_stop(p);
        }
        let Some(mut p) = on.own_p() else {
            if !idle::stop_m(on.lend()) {
                return None;
            }
            continue;
        };
        // A G made ready by a timer runs before the fairness check of the global queue: a running G
        // may have been preempted to make room for it.
        let woken = timekeeper::are_due() && timers::run_due(p.lend());
        if poll::is_due(p.lend()) {
            poll::poll_when_busy(p.lend());
        }
        let found = take_other_after_pair(p.lend())
            .or_else(|| woken.then(|| take_run_next(p.lend())).flatten())
            .or_else(|| take_global_for_fairness(p.lend()))
            .or_else(|| {
                seeded::draw_steal_first(p.on_m().m()).then(|| steal_work(p.lend())).flatten()
            })
            .or_else(|| SCHED.attention.must_search().then(|| take_run_next(p.lend())).flatten())
            .or_else(|| poll_before_interrupted(p.lend()))
            .or_else(|| take_priority(p.lend()))
            .or_else(|| take_local(p.lend()))
            .or_else(|| take_global_batch(p.lend()))
            .or_else(|| poll_io(p.lend()))
            .or_else(|| steal_work(p.lend()));
        if let Some(g) = found {
            return Some(g);
        }
        if let Some(g) = idle::release_p_and_recheck(p) {
            return Some(g);
        }
    }
}

/// Takes another G if a pair of Gs that keep making each other ready has used up its budget of
/// turns. (In Go, such a pair is preempted after 10 ms.)
fn take_other_after_pair(mut p: OwnedP<'_>) -> Option<&'static G> {
    if !p.has_spent_pair_budget() {
        return None;
    }
    p.start_slice();
    let global = pop_global(p.lend(), GlobalReason::Pair, Locked::pop);
    global.or_else(|| {
        let (g, position) = p.queue().take_first_and_position()?;
        p.on_m().set_source(Source::Queue(position));
        Some(g)
    })
}

/// Takes one G from the global queue with `pop`. `why` is recorded.
fn pop_global(
    mut p: OwnedP<'_>,
    why: GlobalReason,
    pop: fn(&mut Locked) -> Option<&'static G>,
) -> Option<&'static G> {
    let mut locked = SCHED.lock.lock();
    let before = locked.queue.len();
    let g = pop(&mut locked);
    if probe::is_recording() {
        recorded::record_take(p.lend(), g, why, before, locked.queue.len());
    }
    drop(locked);
    p.on_m().set_source(Source::Global);
    g
}

/// Takes one G from the global queue in every 61st slice of a P, so that a local queue that is
/// never empty does not starve the global queue.
/// Go: schedtick%61 in findRunnable.
fn take_global_for_fairness(mut p: OwnedP<'_>) -> Option<&'static G> {
    if !p.tick().is_multiple_of(GLOBAL_QUEUE_INTERVAL_TICKS)
        || SCHED.queued.load(Ordering::Relaxed) == 0
    {
        return None;
    }
    let g = pop_global(p.lend(), GlobalReason::Tick, Locked::pop)?;
    p.start_slice();
    Some(g)
}

/// Takes the P's `run_next`, ahead of Gs that must run before the rest of the P's own queue.
fn take_run_next(mut p: OwnedP<'_>) -> Option<&'static G> {
    let g = p.queue().take_run_next()?;
    p.on_m().set_source(Source::RunNext);
    p.inherit_slice();
    Some(g)
}

/// Takes a G that must run before others: an interrupted G, or, if too many Ms are stopped together
/// with their Gs, one of these Gs.
fn take_priority(mut p: OwnedP<'_>) -> Option<&'static G> {
    if !SCHED.attention.is_set(Interrupted) && !SCHED.attention.is_set(TooManyStopped) {
        return None;
    }
    p.io_ahead_streak.store(0, Ordering::Relaxed);
    let g = pop_global(p.lend(), GlobalReason::First, Locked::pop_priority)?;
    p.start_slice();
    Some(g)
}

/// How many times in a row a P polls for I/O before it runs an interrupted G.
const MAX_IO_BEFORE_INTERRUPTED: u32 = 8;

/// Takes a G that I/O made ready, before an interrupted G: the interrupted G would soon be
/// interrupted again to make room.
fn poll_before_interrupted(p: OwnedP<'_>) -> Option<&'static G> {
    let ahead = p.io_ahead_streak.load(Ordering::Relaxed);
    if !SCHED.attention.is_set(Interrupted) || ahead >= MAX_IO_BEFORE_INTERRUPTED {
        return None;
    }
    p.io_ahead_streak.store(ahead + 1, Ordering::Relaxed);
    poll_io(p)
}

/// Takes the P's `run_next`, or else the first G of the P's own queue.
/// Go: runqget.
fn take_local(mut p: OwnedP<'_>) -> Option<&'static G> {
    let (g, slice, source) = recorded::take(p.lend())?;
    p.on_m().set_source(source);
    start_or_inherit_slice(p, slice);
    Some(g)
}

/// Takes a batch of Gs from the global queue.
/// Go: globrunqgetbatch.
fn take_global_batch(mut p: OwnedP<'_>) -> Option<&'static G> {
    if SCHED.queued.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let g = refill_from_global(&mut SCHED.lock.lock(), p.lend())?;
    p.start_slice();
    p.on_m().set_source(Source::Global);
    Some(g)
}

/// Takes a G that I/O made ready.
/// Go: netpoll(0) in findRunnable.
fn poll_io(mut p: OwnedP<'_>) -> Option<&'static G> {
    if !poller_role::should_poll() {
        return None;
    }
    let g = poll::poll_for_g(p.lend())?;
    p.start_slice();
    p.on_m().set_source(Source::Poll);
    Some(g)
}

/// Steals from other Ps, unless enough Ms are spinning already. Makes the M a spinner.
/// Go: stealWork, behind findRunnable's test of nmspinning.
fn steal_work(mut p: OwnedP<'_>) -> Option<&'static G> {
    let m = p.on_m().m();
    if !m.spinning.is_spinning() {
        if !wake::may_spin() {
            return None;
        }
        wake::start_spinning(m);
    }
    let (victim, stolen) = steal::steal(p.lend())?;
    p.count_steal(u64::from(stolen.count.max(1)));
    p.start_slice();
    if probe::is_recording() {
        recorded::record_steal(p.on_m(), victim, &stolen);
    }
    Some(stolen.g)
}
