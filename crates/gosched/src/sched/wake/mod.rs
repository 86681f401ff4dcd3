//! The wake-up protocol: when an M is woken for new work, and when an M may sleep.
//!
//! An M is *spinning* while it has a P and searches for work but has not found any. One spinner is
//! enough to find new work, so a submitter wakes an M only if no M spins. A spinner that finds work
//! wakes the next spinner. `protocol::waking` has the steps, and why no wake-up is lost.
//!
//! Code here never runs a G, and never sleeps.

pub(crate) mod give;
pub(crate) mod hand_off;
pub(crate) mod refusal;

use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::probe;
use crate::probe::event::EventKind;
use crate::protocol::waking;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::timekeeper::{self, TIMEKEEPING};
use crate::sched::state::{poller_role, thread_requests};
use crate::sys::forked;
use std::sync::atomic::Ordering;

/// Starts a spinner if a P is idle and no M spins. Must be called after each submission, with
/// preemption off.
/// Go: wakep.
#[inline]
pub(crate) fn wake_if_idle() {
    if SCHED.counts.is_spinner_wanted_after_submit() {
        start_spinner();
    }
}

/// The cold part of [`wake_if_idle`]: checks again under the lock, and starts the spinner. If the
/// system refuses threads and no M sleeps, hands idle Ps to the Ms of pinned Gs instead.
/// Go: wakep, once a P is idle.
#[cold]
#[inline(never)]
pub(crate) fn start_spinner() {
    if forked::is_child() {
        return; // the Ms are in the parent
    }
    let mut locked = SCHED.lock.lock();
    if thread_requests::is_refused() && locked.idle_ms.is_empty() {
        return give::give_idle_ps_to_locked_ms(&mut locked);
    }
    let p = SCHED.counts.acquire_p_for_spinner(|| locked.pop_idle_p());
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
    SCHED.counts.may_spin(SCHED.procs() as u32)
}

/// Makes an M that has a P a spinner.
pub(crate) fn start_spinning(m: &M) {
    m.spinning.start(&SCHED.counts);
    if probe::is_recording() {
        m.record(EventKind::Spin {});
    }
}

/// Ends the spinning of an M that has found work, and starts the next spinner, because there may be
/// more work.
/// Go: resetspinning.
pub(crate) fn stop_spinning(m: &M) {
    m.spinning.stop_with_work(&SCHED.counts);
    if probe::is_recording() {
        m.record(EventKind::StopSpinning { found: true });
    }
    wake_if_idle();
}

/// Puts the M's P into the list of idle Ps and stops spinning: step 1 of an M without work.
pub(crate) fn become_idle(locked: &mut Locked, m: &M, p: &'static P) {
    locked.push_idle_p(p);
    if m.spinning.is_spinning() && probe::is_recording() {
        m.record(EventKind::StopSpinning { found: false });
    }
    m.spinning.stop_without_work(&SCHED.counts);
}

/// Performs steps 2 and 3 of an M without work. Returns a P if there is work after all; the M then
/// spins.
/// Go: checkRunqsNoP.
pub(crate) fn recheck_for_work(m: &M) -> Option<&'static P> {
    waking::recheck_for_work(is_work_anywhere, || {
        let mut locked = SCHED.lock.lock();
        let p = locked.pop_idle_p()?;
        start_spinning(m);
        drop(locked);
        Some(p)
    })
}

/// Returns whether an M must be woken. Called by a thread that has made a P idle and does not go to
/// sleep itself: steps 2 and 3 of a thread that hands off a P, up to the lock. Also called by the
/// thread maker when it allows new Ms again: until then, submitters could not start an M for the
/// idle Ps.
pub(crate) fn is_m_wanted_after_idling() -> bool {
    waking::is_spinner_wanted_after_idling(is_m_wanted)
}

/// Returns whether an M must be woken: for queued work, to keep the time, or to sleep in the
/// poller.
fn is_m_wanted() -> bool {
    is_work_anywhere() || TIMEKEEPING.is_timekeeper_missing() || poller_role::is_poller_wanted()
}

/// Returns whether any queue holds a G, or a timer is due.
pub(crate) fn is_work_anywhere() -> bool {
    is_g_queued() || timekeeper::are_due()
}

/// Returns whether any queue holds a G.
pub(crate) fn is_g_queued() -> bool {
    SCHED.queued.load(Ordering::Relaxed) > 0 || SCHED.used_ps().any(|p| !p.is_queue_empty())
}
