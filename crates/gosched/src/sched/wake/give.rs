//! A P is given to an M: to one that sleeps, to one that a goroutine is locked to, or to the next that is made.
//!
//! A P in flight belongs to its receiver alone: the P is in no list, and its status is idle. Sysmon looks after Ps
//! that are in flight for long (`in_flight`).

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::p::{P, PStatus};
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{poller_role, thread_requests};
use crate::sys::fatal::fatal;
use gosched_fiber::lock::LockGuard as Guard;
use std::sync::atomic::Ordering;

/// Gives the P to a sleeping M, or to the next one the thread maker makes. The caller owns the P; where
/// the M is to spin, it is counted already.
/// Go: startm.
pub(crate) fn start_m(mut locked: Guard<'_, Locked>, p: &'static P, spinning: bool) {
    p.set_status(PStatus::Idle);
    match locked.pop_idle_m() {
        Some(m) => {
            let stock = locked.idle_ms.len();
            drop(locked);
            m.spinning.store(spinning, Ordering::Relaxed);
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
            p.for_spinner.store(spinning, Ordering::Relaxed);
            locked.orphans.push(p);
            drop(locked);
            thread_requests::request_thread();
        }
    }
}

/// To the M that sleeps until it can run the goroutine it is locked to; which is in no queue any more.
pub(crate) fn hand_p_to(owner: &'static M, p: &'static P) {
    owner.wake_with_p(p, poller_role::wake_m);
}

/// Where no thread is to be had: idle Ps go straight to the Ms whose goroutines can run. No other M
/// may be left to bring them.
pub(crate) fn give_idle_ps_to_locked_ms(locked: &mut Locked) {
    while locked.idle_ps.iter().next().is_some() {
        let Some(g) = locked.queue.remove_pinned() else { break };
        locked.publish_length();
        if let (Some(owner), Some(p)) = (pinned_m(g), locked.pop_idle_p()) {
            hand_p_to(owner, p);
        }
    }
}

/// The P that the waker gave.
/// Go: acquirep(mp.nextp).
pub(crate) fn acquire_next_p(m: &'static M) {
    match m.take_next_p() {
        Some(p) => m.acquire_p(p),
        None => fatal!("M{} was woken without a P", m.id),
    }
}

/// The M that alone may run `g`, if there is one.
/// Go: g.lockedm.
#[inline]
pub(crate) fn pinned_m(g: &'static G) -> Option<&'static M> {
    // SAFETY: null, or an M: they are never freed.
    unsafe { g.pinned.load(Ordering::Relaxed).cast::<M>().as_ref() }
}

/// A P for which there is no M is idle; what was in its queue is everybody's.
/// Go: pidleput.
pub(crate) fn drain_to_idle(locked: &mut Locked, p: &'static P, spinning: bool) {
    if spinning {
        SCHED.spinning.fetch_sub(1, Ordering::Relaxed);
    }
    while let Some((g, _)) = p.queue.take() {
        locked.push(g);
    }
    p.set_status(PStatus::Idle);
    locked.push_idle_p(p);
}
