//! Hands off the P of an M that cannot continue. This module never takes a P away from an M: the M
//! has already released or lost it.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::gmp::record::record;
use crate::probe;
use crate::probe::event::EventKind;
use crate::probe::field::{GlobalReason, Source, Span};
use crate::protocol::attention::AttentionFlag;
use crate::sched::state::global::{self, Locked, SCHED};
use crate::sched::state::{stopping, thread_requests, timekeeper};
use crate::sched::wake::{self, give};
use gosched_fiber::lock::LockGuard as Guard;

/// Hands off a P that an M has given up or lost: to another M if there is work, otherwise to the
/// list of idle Ps. The caller owns the P.
/// Go: handoffp.
pub(crate) fn hand_off(p: &'static P) {
    hand_off_locked(SCHED.lock.lock(), p);
}

/// Like [`hand_off`], for a caller that holds the lock.
/// Go: handoffp.
pub(crate) fn hand_off_locked(mut locked: Guard<'_, Locked>, p: &'static P) {
    if stopping::is_stopping() {
        stopping::count_stopped(&mut locked, p);
        return;
    }
    if let Some((g, owner)) = pop_next_owner(&mut locked, p) {
        record_take(&locked, g, owner);
        drop(locked);
        return give::hand_p_to(owner, p);
    }
    if !p.is_queue_empty() || !locked.queue.is_empty() {
        return give::start_m(locked, p, false);
    }
    locked.push_idle_p(p);
    drop(locked);
    if wake::is_m_wanted_after_idling() {
        wake::start_spinner();
    }
}

/// Records that `g` was just taken from the global queue, for the M `owner` that is about to be
/// given a P. Called under the lock.
fn record_take(locked: &Locked, g: &'static G, owner: &'static M) {
    if probe::is_recording() {
        let others = Span { position: 0, count: 0 };
        let (g, why, len) = (g.id(), GlobalReason::Pinned, locked.queue.len() as u32 + 1);
        record(|| EventKind::TakeGlobal { g, why, others, len });
        owner.set_source(Source::Global);
    }
}

/// Returns `g` and the M that alone can run it, if there is one.
fn with_owner(g: &'static G) -> Option<(&'static G, &'static M)> {
    g.pinned.get().map(|owner| (g, owner))
}

/// Takes a pinned G out of the global queue and returns it with its M, if that G is the next to run
/// with `p`, or if no M sleeps. The P can then go straight to that M, without another M in between.
fn pop_next_owner(locked: &mut Locked, p: &'static P) -> Option<(&'static G, &'static M)> {
    // A pinned M continues its G at once. A due timer needs an M that searches for work.
    let due = timekeeper::are_due();
    if !due
        && !p.tick().is_multiple_of(global::GLOBAL_QUEUE_INTERVAL_TICKS)
        && SCHED.attention.is_set(AttentionFlag::TooManyStopped)
    {
        let first = locked.pop_priority();
        if let Some(found) = first.and_then(with_owner) {
            return Some(found);
        }
        // The G is not pinned: any M can run it.
        first.inspect(|g| locked.push_interrupted(g));
    }
    let front = locked.queue.front().filter(|_| p.is_queue_empty() && !due);
    if let Some(found) = front.and_then(with_owner) {
        locked.pop();
        return Some(found);
    }
    if !locked.idle_ms.is_empty() {
        return None;
    }
    // No M sleeps. A pinned M can use the P at once; the new thread is for the next hand-off.
    thread_requests::request_thread();
    locked.pop_pinned().and_then(with_owner)
}

/// Hands Ps that wait for a new thread to Ms that were stopped together with their Gs: creating the
/// thread may need a lock that one of these Gs holds. Called by sysmon.
pub(crate) fn rescue_orphans() {
    let mut locked = SCHED.lock.lock();
    while !locked.orphans.is_empty() && !stopping::is_stopping() {
        let Some((g, owner)) = locked.pop_pinned().and_then(with_owner) else { return };
        record_take(&locked, g, owner);
        let Some(p) = locked.orphans.pop_front() else { return };
        p.for_spinner.stop_without_work(&SCHED.counts);
        give::hand_p_to(owner, p);
    }
}
