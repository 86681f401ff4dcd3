//! The two counts that decide when an M is woken: the number of idle Ps, and the number of spinning
//! Ms.
//!
//! `sched::wake` describes the protocol and passes the scheduler's counts to these functions; a
//! model passes its own counts. `idle_ps` is written only under the scheduler's lock.

use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::barrier;

/// Returns whether a spinner must be started: a P is idle, and no M spins.
#[inline]
fn is_spinner_wanted(idle_ps: &AtomicU32, spinning: &AtomicU32) -> bool {
    idle_ps.load(Ordering::Relaxed) != 0 && spinning.load(Ordering::Relaxed) == 0
}

/// Returns whether a submitter must call [`acquire_p_for_spinner`]: steps 2 and 3 of the submitter,
/// up to the lock.
/// Go: wakep, its test.
#[inline]
pub(crate) fn is_spinner_wanted_after_submit(idle_ps: &AtomicU32, spinning: &AtomicU32) -> bool {
    barrier::light();
    is_spinner_wanted(idle_ps, spinning)
}

/// Acquires a P for a new spinner and counts the spinner, if a spinner is still needed. Called
/// under the lock.
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

/// Checks all queues once more, and acquires a P if there is work: steps 2 and 3 of an M without
/// work.
/// Go: checkRunqsNoP.
pub(crate) fn recheck_for_work<P>(
    is_work_anywhere: impl FnOnce() -> bool,
    acquire_p: impl FnOnce() -> Option<P>,
) -> Option<P> {
    barrier::heavy();
    if is_work_anywhere() { acquire_p() } else { None }
}

/// Returns whether one more M may spin: at most half as many Ms spin as Ps are busy.
pub(crate) fn may_spin(procs: u32, idle_ps: &AtomicU32, spinning: &AtomicU32) -> bool {
    let busy = procs.saturating_sub(idle_ps.load(Ordering::Relaxed));
    2 * spinning.load(Ordering::Relaxed) < busy
}

/// Counts an M that starts to spin. The M has a P, or is about to be given one.
/// Go: becomeSpinning.
pub(crate) fn start_spinning(spinning: &AtomicU32) {
    spinning.fetch_add(1, Ordering::Relaxed);
}

/// Removes an M from the count because it found work. The M continues as a submitter does.
///
/// A submitter that still sees this M spin relies on it to see every P that is idle by then. Both
/// sides pass only light barriers, so the count itself must provide the order.
pub(crate) fn stop_spinning_with_work(spinning: &AtomicU32) {
    // PAIR spinning: sees the idle Ps of spinners that stopped before.
    spinning.fetch_sub(1, Ordering::Acquire);
}

/// Removes an M from the count because it found no work. Its P is already counted as idle.
pub(crate) fn stop_spinning_without_work(spinning: &AtomicU32) {
    // PAIR spinning: publishes the count of idle Ps.
    spinning.fetch_sub(1, Ordering::Release);
}

/// Counts a P that becomes idle. Called under the lock.
pub(crate) fn count_idle_p(idle_ps: &AtomicU32) {
    idle_ps.store(idle_ps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Removes an idle P, which is acquired, from the count. Called under the lock.
pub(crate) fn count_acquired_p(idle_ps: &AtomicU32) {
    idle_ps.store(idle_ps.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
}
