//! An M that cannot go on gives its P away.

use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::sched::state::global::{self, Locked, SCHED, TOO_MANY_STOPPED};
use crate::sched::state::{stopping, thread_requests, timekeeper};
use crate::sched::wake::{self, give};
use crate::sys::barrier;
use gosched_fiber::lock::LockGuard as Guard;
use std::sync::atomic::Ordering;

/// What an M that has no P any more leaves behind. The caller owns the P.
/// Go: handoffp.
pub(crate) fn hand_off(p: &'static P) {
    hand_off_locked(SCHED.lock.lock(), p);
}

/// As [`hand_off`], by a holder of the lock.
/// Go: handoffp.
pub(crate) fn hand_off_locked(mut locked: Guard<'_, Locked>, p: &'static P) {
    if stopping::is_stopping() {
        stopping::count_stopped(&mut locked, p);
        return;
    }
    if let Some(owner) = pop_next_owner(&mut locked, p) {
        drop(locked);
        return give::hand_p_to(owner, p);
    }
    if !p.queue.is_empty() || !locked.queue.is_empty() {
        return give::start_m(locked, p, false);
    }
    locked.push_idle_p(p);
    drop(locked);
    barrier::heavy();
    if wake::is_m_wanted() {
        wake::start_spinner();
    }
}

/// The next one to run with `p` may be an M's own: no other M is needed to bring it the P. That one, and its
/// goroutine is in no queue any more.
fn pop_next_owner(locked: &mut Locked, p: &'static P) -> Option<&'static M> {
    // Somebody must look at the timers.
    let due = timekeeper::are_due();
    if !due
        && !p.tick().is_multiple_of(global::GLOBAL_QUEUE_INTERVAL_TICKS)
        && SCHED.attention() & TOO_MANY_STOPPED != 0
    {
        let first = locked.pop_priority();
        if let Some(owner) = first.and_then(give::pinned_m) {
            return Some(owner);
        }
        // Any M can run it.
        first.inspect(|g| locked.push_interrupted(g));
    }
    let front = locked.queue.front().filter(|_| p.queue.is_empty() && !due);
    if let Some(owner) = front.and_then(give::pinned_m) {
        locked.pop();
        return Some(owner);
    }
    if !locked.idle_ms.is_empty() {
        return None;
    }
    // Rather than wait for a thread; there should be one the next time.
    thread_requests::request_thread();
    locked.pop_pinned().and_then(give::pinned_m)
}

/// Gives Ps that wait for a thread to Ms that were stopped with their goroutines: making one may take a lock
/// that one of those holds. By sysmon.
pub(crate) fn rescue_orphans() {
    let mut locked = SCHED.lock.lock();
    while !locked.orphans.is_empty() && !stopping::is_stopping() {
        let Some(owner) = locked.pop_pinned().and_then(give::pinned_m) else { return };
        let Some(p) = locked.orphans.pop() else { return };
        if p.for_spinner.load(Ordering::Relaxed) {
            SCHED.spinning.fetch_sub(1, Ordering::Relaxed);
        }
        give::hand_p_to(owner, p);
    }
}
