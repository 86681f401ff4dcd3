//! Gives a P to an M: to a sleeping M, to the M that a G is pinned to, or to the next M that is
//! made.
//!
//! A P is *in flight* from the moment it is handed to an M until that M acquires it. It is owned by
//! its receiver alone: it is in no list, and its status is idle. Sysmon watches Ps that stay in
//! flight for long (`in_flight`).
//!
//! This module never makes a thread: the thread maker does.

use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::gmp::record::record;
use crate::gmp::token::OnM;
use crate::probe::event::EventKind;
use crate::probe::field::Place;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{poller_role, thread_requests};
use crate::sys::fatal::fatal;
use gosched_fiber::lock::LockGuard as Guard;

/// Hands the P to a sleeping M, or queues it for the next M that the thread maker makes. If the
/// system refuses threads, makes the P idle. The caller owns the P. If `spinning` is set, the
/// caller has already counted the M as spinning.
/// Go: startm.
pub(crate) fn start_m(mut locked: Guard<'_, Locked>, p: &'static P, spinning: bool) {
    match locked.pop_idle_m() {
        Some(m) => {
            let stock = locked.idle_ms.len();
            drop(locked);
            m.spinning.set_counted(spinning);
            record(|| EventKind::Wake { m: m.id, p: p.id, spins: spinning });
            m.wake_with_p(p, poller_role::wake_m);
            if stock == 0 {
                thread_requests::request_thread();
            }
        }
        None if thread_requests::is_refused() => {
            drain_to_idle(&mut locked, p, spinning);
            give_idle_ps_to_locked_ms(&mut locked);
        }
        None => {
            p.check_unowned();
            record(|| EventKind::NeedThread { p: p.id, spins: spinning });
            p.for_spinner.set_counted(spinning);
            locked.orphans.push_front(p);
            drop(locked);
            thread_requests::request_thread();
        }
    }
}

/// Hands the P to an M that sleeps until its pinned G can run. That G is no longer in any queue.
pub(crate) fn hand_p_to(owner: &'static M, p: &'static P) {
    record(|| EventKind::Wake { m: owner.id, p: p.id, spins: false });
    owner.wake_with_p(p, poller_role::wake_m);
}

/// Hands idle Ps directly to the Ms of queued pinned Gs. Used if the system refuses threads: there
/// may be no other M that could find these Gs.
pub(crate) fn give_idle_ps_to_locked_ms(locked: &mut Locked) {
    while locked.idle_ps.iter().next().is_some() {
        let Some(g) = locked.remove_pinned() else { break };
        if let (Some(owner), Some(p)) = (g.pinned.get(), locked.pop_idle_p()) {
            hand_p_to(owner, p);
        }
    }
}

/// Acquires the P that the waking thread handed to the M.
/// Go: acquirep(mp.nextp).
pub(crate) fn acquire_next_p(on: OnM<'_>) {
    match on.next_p.take() {
        Some(p) => drop(on.acquire_p(p)),
        None => fatal!("M{} was woken without a P", on.id),
    }
}

/// Makes a P idle for which there is no M, and moves the Gs of its queue to the global queue. If
/// `spinning` is set, the missing M is no longer counted as spinning.
/// Go: pidleput.
pub(crate) fn drain_to_idle(locked: &mut Locked, p: &'static P, spinning: bool) {
    while let Some(g) = p.drain() {
        record(|| EventKind::Enqueue { g: g.id(), to: Place::Global });
        locked.push(g);
    }
    locked.push_idle_p(p);
    if spinning {
        SCHED.counts.stop_spinning_without_work();
    }
}
