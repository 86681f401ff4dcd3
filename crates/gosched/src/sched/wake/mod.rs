//! When an M is woken for new work, and when it may go to sleep: no G waits while a P is idle and
//! nobody looks.
//!
//! An M is *spinning* while it has a P and looks for work in vain. One spinner is enough to find new
//! work, so a submitter wakes an M only where none spins; a spinner that finds work wakes the next.
//!
//! Submitter: 1. puts the G into a queue; 2. light barrier; 3. if a P is idle and nobody spins: takes
//! the lock, looks again, and starts a spinner with that P.
//! M without work: 1. puts its P into the list of idle ones, and stops spinning; 2. heavy barrier;
//! 3. looks into all queues: if there is a G, takes an idle P and spins again; 4. sleeps.
//!
//! Why it cannot fail. The barriers make one of two things true: the M's step 3 sees the G, or the
//! submitter's step 3 sees the idle P and the count without this M. In the first case the M goes on
//! looking. In the second the submitter starts a spinner, unless another one spins: that one has yet
//! to do its own steps 1 to 3, or finds work and wakes the next. Whoever is counted
//! in `spinning` has a P, or is given one with the count, so "somebody spins" is never an empty promise.

pub(crate) mod give;
pub(crate) mod hand_off;
pub(crate) mod refusal;

use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::gmp::waking;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{poller_role, thread_requests, timekeeper};
use std::sync::atomic::Ordering;

/// Starts a spinner if a P is idle and nobody spins. To be called after each submission, with
/// preemption off.
/// Go: wakep.
#[inline]
pub(crate) fn wake_if_idle() {
    if waking::is_spinner_wanted_after_submit(&SCHED.idle_ps, &SCHED.spinning) {
        start_spinner();
    }
}

/// The cold part of [`wake_if_idle`].
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

/// As [`start_spinner`], for the thread maker that was refused a thread: only an M that is there will do.
pub(crate) fn wake_if_m_sleeps() {
    let there = !SCHED.lock.lock().idle_ms.is_empty();
    if there {
        wake_if_idle();
    }
}

/// Whether one more M may spin: at most half as many as Ps are busy.
pub(crate) fn may_spin() -> bool {
    waking::may_spin(SCHED.procs() as u32, &SCHED.idle_ps, &SCHED.spinning)
}

/// Go: becomeSpinning.
pub(crate) fn start_spinning(m: &'static M) {
    m.spinning.store(true, Ordering::Relaxed);
    waking::start_spinning(&SCHED.spinning);
}

/// It has found work: wakes the next, since there may be more.
/// Go: resetspinning.
pub(crate) fn stop_spinning(m: &'static M) {
    m.spinning.store(false, Ordering::Relaxed);
    waking::stop_spinning_with_work(&SCHED.spinning);
    wake_if_idle();
}

/// The M's P to the idle ones, and the M is no spinner any more: step 1 of an M without work.
pub(crate) fn become_idle(locked: &mut Locked, m: &'static M, p: &'static P) {
    locked.push_idle_p(p);
    if m.spinning.load(Ordering::Relaxed) {
        m.spinning.store(false, Ordering::Relaxed);
        waking::stop_spinning_without_work(&SCHED.spinning);
    }
}

/// Steps 2 and 3 of an M without work: a P to go on with, if there is work after all.
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

/// Whether an M is wanted where all sleep: for work, or to wake for a timer or for I/O. Asked by whoever has
/// made a P idle without going to sleep, after a heavy barrier.
pub(crate) fn is_m_wanted() -> bool {
    is_work_anywhere() || timekeeper::is_timekeeper_missing() || poller_role::is_poller_wanted()
}

/// Whether any queue holds a G, or a timer is due.
pub(crate) fn is_work_anywhere() -> bool {
    is_g_queued() || timekeeper::are_due()
}

/// Whether any queue holds a G.
pub(crate) fn is_g_queued() -> bool {
    SCHED.queued.load(Ordering::Relaxed) > 0 || SCHED.used_ps().any(|p| !p.queue.is_empty())
}
