//! The wake-up protocol: when an M is woken for new work, and when an M may sleep.
//!
//! The protocol ensures that no G stays queued while a P is idle and no M searches for work. An M
//! is *spinning* while it has a P and searches for work but has not found any. One spinner is
//! enough to find new work, so a submitter wakes an M only if no M spins. A spinner that finds work
//! wakes the next spinner.
//!
//! - Submitter: 1. puts the G into a queue; 2. passes a light barrier; 3. if a P is idle and no M
//!   spins: takes the lock, checks both again, and starts a spinner with an idle P.
//! - M without work: 1. puts its P into the list of idle Ps, and stops spinning; 2. passes a heavy
//!   barrier; 3. checks all queues and the timers: if there is work, takes an idle P and spins
//!   again; 4. sleeps.
//!
//! Why no wake-up is lost: the barriers ensure that the M's step 3 sees the G, or that the
//! submitter's step 3 sees the idle P and a count of spinners without this M. In the first case,
//! the M continues to search. In the second case, the submitter starts a spinner, unless another M
//! spins. That other M has not done its own steps 1 to 3 yet, or it finds work and wakes the next
//! spinner. Every M that is counted in `spinning` has a P, or is given one together with the count,
//! so a submitter never relies on a spinner that does not exist.

pub(crate) mod give;
pub(crate) mod hand_off;
pub(crate) mod refusal;

use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::protocol::waking;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{poller_role, thread_requests, timekeeper};
use std::sync::atomic::Ordering;

/// Starts a spinner if a P is idle and no M spins. Must be called after each submission, with
/// preemption off.
/// Go: wakep.
#[inline]
pub(crate) fn wake_if_idle() {
    if waking::is_spinner_wanted_after_submit(&SCHED.idle_ps, &SCHED.spinning) {
        start_spinner();
    }
}

/// The cold part of [`wake_if_idle`]: checks again under the lock, and starts the spinner. If the
/// system refuses threads and no M sleeps, hands idle Ps to the Ms of pinned Gs instead.
/// Go: wakep, once a P is idle.
#[cold]
#[inline(never)]
pub(crate) fn start_spinner() {
    let mut locked = SCHED.lock.lock();
    if thread_requests::is_refused() && locked.idle_ms.is_empty() {
        return give::give_idle_ps_to_locked_ms(&mut locked);
    }
    let p = waking::acquire_p_for_spinner(&SCHED.idle_ps, &SCHED.spinning, || locked.pop_idle_p());
    if let Some(p) = p {
        give::start_m(locked, p, true);
    }
}

/// Like [`wake_if_idle`], but only if an M sleeps. Called when the system has refused a thread.
pub(crate) fn wake_if_m_sleeps() {
    let there = !SCHED.lock.lock().idle_ms.is_empty();
    if there {
        wake_if_idle();
    }
}

/// Returns whether one more M may spin: at most half as many Ms spin as Ps are busy.
pub(crate) fn may_spin() -> bool {
    waking::may_spin(SCHED.procs() as u32, &SCHED.idle_ps, &SCHED.spinning)
}

/// Makes `m` a spinner. The caller has a P for `m`.
/// Go: becomeSpinning.
pub(crate) fn start_spinning(m: &'static M) {
    m.spinning.store(true, Ordering::Relaxed);
    waking::start_spinning(&SCHED.spinning);
}

/// Ends the spinning of an M that has found work, and starts the next spinner, because there may be
/// more work.
/// Go: resetspinning.
pub(crate) fn stop_spinning(m: &'static M) {
    m.spinning.store(false, Ordering::Relaxed);
    waking::stop_spinning_with_work(&SCHED.spinning);
    wake_if_idle();
}

/// Puts the M's P into the list of idle Ps and stops spinning: step 1 of an M without work.
pub(crate) fn become_idle(locked: &mut Locked, m: &'static M, p: &'static P) {
    locked.push_idle_p(p);
    if m.spinning.load(Ordering::Relaxed) {
        m.spinning.store(false, Ordering::Relaxed);
        waking::stop_spinning_without_work(&SCHED.spinning);
    }
}

/// Performs steps 2 and 3 of an M without work. Returns a P if there is work after all; the M then
/// spins.
/// Go: checkRunqsNoP.
pub(crate) fn recheck_for_work(m: &'static M) -> Option<&'static P> {
    waking::recheck_for_work(is_work_anywhere, || {
        let mut locked = SCHED.lock.lock();
        let p = locked.pop_idle_p()?;
        start_spinning(m);
        drop(locked);
        Some(p)
    })
}

/// Returns whether an M must be woken: for queued work, to keep the time, or to sleep in the
/// poller. Called after a heavy barrier by a thread that has made a P idle and does not go to sleep
/// itself.
pub(crate) fn is_m_wanted() -> bool {
    is_work_anywhere() || timekeeper::is_timekeeper_missing() || poller_role::is_poller_wanted()
}

/// Returns whether any queue holds a G, or a timer is due.
pub(crate) fn is_work_anywhere() -> bool {
    is_g_queued() || timekeeper::are_due()
}

/// Returns whether any queue holds a G.
pub(crate) fn is_g_queued() -> bool {
    SCHED.queued.load(Ordering::Relaxed) > 0 || SCHED.used_ps().any(|p| !p.queue.is_empty())
}
