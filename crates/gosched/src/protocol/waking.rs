//! The two counts that decide when an M is woken: the number of idle Ps, and the number of spinning
//! Ms.
//!
//! The invariant: no G stays queued while a P is idle and no M searches for work. An M that is
//! counted as spinning has a P and searches for work, or is about to be given a P and will search.
//!
//! - Submitter: 1. puts the G into a queue; 2. passes a light barrier; 3. if a P is idle and no M
//!   spins: takes the lock, checks both again, and starts a spinner with an idle P.
//! - M without work: 1. puts its P into the list of idle Ps, and stops spinning; 2. passes a heavy
//!   barrier; 3. checks all queues and the timers: if there is work, takes an idle P and spins
//!   again; 4. sleeps.
//! - Thread that hands off a P without work: 1. under the lock: finds no G in the P's queue and in
//!   the global queue, and puts the P into the list of idle Ps; 2. passes a heavy barrier;
//!   3. checks all queues and the timers: if there is work, takes the lock, checks that a P is idle
//!   and that no M spins, and starts a spinner with an idle P. The thread itself does not search,
//!   and perhaps all Ms sleep.
//!
//! Why no wake-up is lost: the barriers ensure that the M's step 3 sees the G, or that the
//! submitter's step 3 sees the idle P and a count of spinners without this M. In the first case,
//! the M continues to search. In the second case, the submitter starts a spinner, unless another M
//! spins. That other M has not done its own steps 1 to 3 yet, or it finds work and wakes the next
//! spinner. For a P that is handed off, the same holds with the thread in place of the M, except
//! that the thread starts a spinner instead of searching.
//!
//! The number of idle Ps is written only under the scheduler's lock. This module never takes that
//! lock and never wakes an M: its callers do.

use crate::sys::atomic::{AtomicU32, Ordering, const_fn};
use crate::sys::barrier;
use crate::sys::cache_padded::CachePadded;

/// The counts (see the top of this file). They lie on different cache lines: while all Ps are busy,
/// a submitter reads only the number of idle Ps, which Ms that start and stop spinning do not
/// write.
#[derive(Debug)]
pub(crate) struct WakeCounts {
    idle_ps: CachePadded<AtomicU32>,
    spinning: CachePadded<AtomicU32>,
}

impl WakeCounts {
    const_fn! {
        pub(crate) fn new() -> WakeCounts {
            WakeCounts {
                idle_ps: CachePadded::new(AtomicU32::new(0)),
                spinning: CachePadded::new(AtomicU32::new(0)),
            }
        }
    }

    /// Returns the number of idle Ps.
    #[inline]
    pub(crate) fn idle_ps(&self) -> u32 {
        self.idle_ps.load(Ordering::Relaxed)
    }

    /// Returns the number of spinning Ms.
    #[inline]
    pub(crate) fn spinning(&self) -> u32 {
        self.spinning.load(Ordering::Relaxed)
    }

    /// Returns whether a spinner must be started: a P is idle, and no M spins.
    #[inline]
    fn is_spinner_wanted(&self) -> bool {
        self.idle_ps() != 0 && self.spinning() == 0
    }

    /// Returns whether a submitter must call [`WakeCounts::acquire_p_for_spinner`]: steps 2 and 3
    /// of the submitter, up to the lock.
    /// Go: wakep, its test.
    #[inline]
    pub(crate) fn is_spinner_wanted_after_submit(&self) -> bool {
        barrier::light();
        self.is_spinner_wanted()
    }

    /// Acquires a P for a new spinner and counts the spinner, if a spinner is still needed. Called
    /// under the lock.
    /// Go: wakep, behind its test.
    pub(crate) fn acquire_p_for_spinner<P>(
        &self,
        acquire_p: impl FnOnce() -> Option<P>,
    ) -> Option<P> {
        if !self.is_spinner_wanted() {
            return None;
        }
        acquire_p().inspect(|_| self.start_spinning())
    }

    /// Returns whether one more M may spin: at most half as many Ms spin as Ps are busy.
    pub(crate) fn may_spin(&self, procs: u32) -> bool {
        let busy = procs.saturating_sub(self.idle_ps());
        2 * self.spinning() < busy
    }

    /// Counts an M that starts to spin. The M has a P, or is about to be given one.
    /// Go: becomeSpinning.
    pub(crate) fn start_spinning(&self) {
        self.spinning.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes an M from the count because it found work. The M continues as a submitter does.
    ///
    /// A submitter that still sees this M spin relies on it to see every P that is idle by then.
    /// Both sides pass only light barriers, so the count itself must provide the order.
    pub(crate) fn stop_spinning_with_work(&self) {
        // PAIR spinning: sees the idle Ps of spinners that stopped before.
        self.spinning.fetch_sub(1, Ordering::Acquire);
    }

    /// Removes an M from the count because it found no work, or because it will not be made. Its P
    /// is already counted as idle, has stopped with the world, or goes to an M that does not spin.
    pub(crate) fn stop_spinning_without_work(&self) {
        // PAIR spinning: publishes the count of idle Ps.
        self.spinning.fetch_sub(1, Ordering::Release);
    }

    /// Counts a P that becomes idle. Called under the lock.
    pub(crate) fn count_idle_p(&self) {
        self.idle_ps.store(self.idle_ps() + 1, Ordering::Relaxed);
    }

    /// Removes an idle P, which is acquired, from the count. Called under the lock.
    pub(crate) fn count_acquired_p(&self) {
        self.idle_ps.store(self.idle_ps() - 1, Ordering::Relaxed);
    }
}

/// Returns whether a thread that has put a P into the list of idle Ps, and does not go to sleep,
/// must start a spinner: steps 2 and 3 of a thread that hands off a P, up to the lock. `is_wanted`
/// returns whether there is work or an M is needed for another reason.
/// Go: handoffp, its checks before pidleput.
pub(crate) fn is_spinner_wanted_after_idling(is_wanted: impl FnOnce() -> bool) -> bool {
    barrier::heavy();
    is_wanted()
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
