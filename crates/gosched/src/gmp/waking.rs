//! The two counts by which Ms are woken, and who looks at them when: how many Ps are idle, and how
//! many Ms spin.
//!
//! The protocol is told in `sched::wake`, which gives these functions the scheduler's counts; a model
//! gives them its own. `idle_ps` is written under the scheduler's lock only.

use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::barrier;

/// Whether a spinner is to be started: a P is idle, and nobody spins.
#[inline]
fn is_spinner_wanted(idle_ps: &AtomicU32, spinning: &AtomicU32) -> bool {
    idle_ps.load(Ordering::Relaxed) != 0 && spinning.load(Ordering::Relaxed) == 0
}

/// Steps 2 and 3 of a submitter, up to the lock: whether [`acquire_p_for_spinner`] is to be asked.
/// Go: wakep, its test.
#[inline]
pub(crate) fn is_spinner_wanted_after_submit(idle_ps: &AtomicU32, spinning: &AtomicU32) -> bool {
    barrier::light();
    is_spinner_wanted(idle_ps, spinning)
}

/// Under the lock: a P for a spinner if one is still wanted, and it is counted.
/// Go: wakep, behind its test.
pub(crate) fn acquire_p_for_spinner<P>(
    idle_ps: &AtomicU32,
    spinning: &AtomicU32,
    acquire_p: impl FnOnce() -> Option<P>,
) -> Option<P> {
    if !is_spinner_wanted(idle_ps, spinning) {
        return None;
    }
    acquire_p().inspect(|_| start_spinning(spinning))
}

/// Steps 2 and 3 of an M without work: a P to go on with, if there is work after all.
/// Go: checkRunqsNoP.
pub(crate) fn recheck_for_work<P>(
    is_work_anywhere: impl FnOnce() -> bool,
    acquire_p: impl FnOnce() -> Option<P>,
) -> Option<P> {
    barrier::heavy();
    if is_work_anywhere() { acquire_p() } else { None }
}

/// Whether one more M may spin: at most half as many as Ps are busy.
pub(crate) fn may_spin(procs: u32, idle_ps: &AtomicU32, spinning: &AtomicU32) -> bool {
    let busy = procs.saturating_sub(idle_ps.load(Ordering::Relaxed));
    2 * spinning.load(Ordering::Relaxed) < busy
}

/// An M with a P spins.
/// Go: becomeSpinning.
pub(crate) fn start_spinning(spinning: &AtomicU32) {
    spinning.fetch_add(1, Ordering::Relaxed);
}

/// It does not any more: it found work, and goes on as a submitter does.
///
/// A submitter that still sees it spin relies on it to see every P that is idle by then. Between the
/// two are only light barriers, so the order must come from the count.
pub(crate) fn stop_spinning_with_work(spinning: &AtomicU32) {
    // PAIR spinning: sees the idle Ps of those who gave up before.
    spinning.fetch_sub(1, Ordering::Acquire);
}

/// It does not any more: it found nothing, and its P is counted as idle.
pub(crate) fn stop_spinning_without_work(spinning: &AtomicU32) {
    // PAIR spinning: publishes the count of idle Ps.
    spinning.fetch_sub(1, Ordering::Release);
}

/// A P more is idle. Under the lock.
pub(crate) fn count_idle_p(idle_ps: &AtomicU32) {
    idle_ps.store(idle_ps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// An idle P was acquired. Under the lock.
pub(crate) fn count_acquired_p(idle_ps: &AtomicU32) {
    idle_ps.store(idle_ps.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
}
