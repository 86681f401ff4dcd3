//! How many waiters for I/O there are, and whether an M is blocked in the poller for them.
//!
//! The invariant: while there is a waiter, a thread polls or will poll. A busy P counts as such a
//! thread, because its M polls soon, or sysmon polls if the P is *stalled* (see
//! `sched::state::poller_role`). Otherwise an M is blocked in the poller, or an M is about to check
//! for waiters or to be woken.
//!
//! - Waiter on a thread that is not an M: 1. counts itself, and publishes itself at its descriptor;
//!   2. passes a light barrier; 3. if no M is blocked in the poller, and every P is idle or
//!   stalled: wakes an M with an idle P, unless an M spins (`protocol::waking`).
//! - M without work: 1. puts its P into the list of idle Ps, and stops spinning; 2. passes a heavy
//!   barrier; 3. under the scheduler's lock: if the role of poller is free (`protocol::poll_role`),
//!   every P is idle or stalled, and there is a waiter: takes the role, and sets the flag that an M
//!   is blocked in the poller; 4. sleeps, in the poller if it has the role, otherwise on its note.
//! - Thread that makes a P idle without going to sleep: 1. puts the P into the list of idle Ps;
//!   2. passes a heavy barrier; 3. as the waiter's step 3.
//! - M that leaves the poller and gets no P, because its sleep times out or because it is woken for
//!   a timer: 1. under the lock, the M or its waker clears the flag; 2. the M continues with step 3
//!   of an M without work.
//!
//! Why no waiter is missed: the barriers ensure that step 3 of the M, or of the thread, sees the
//! waiter, or that the waiter's step 3 sees the idle P. In the second case, the waiter sees the M
//! that is blocked in the poller, or wakes an M, or sees an M spin. A spinning M has not done its
//! own steps 1 to 3 yet. A G that waits leaves an M with a P behind, and that M does its steps 1 to
//! 3 before it sleeps.
//!
//! The M that leaves the poller passes no heavy barrier between its two steps, because its P was
//! idle before. So the count of the waiter, the load of the flag by the waiter, the store that
//! clears the flag, and the M's check for waiters are `SeqCst`: the waiter sees that the flag is
//! cleared, or the M sees the waiter.
//!
//! A waiter is uncounted when its wait ends. This module never takes the scheduler's lock, never
//! polls and never wakes an M: its callers do.

use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering, const_fn};
use crate::sys::barrier;

/// The count of waiters and the flag (see the top of this file). Every M that searches for work
/// reads both.
#[derive(Debug)]
pub(crate) struct IoWaiters {
    count: AtomicUsize,
    /// Whether an M sleeps in the poller and no waker has taken it out of the list of idle Ms.
    /// Written under the scheduler's lock.
    /// Go: sched.lastpoll == 0.
    is_m_blocked: AtomicU32,
}

impl IoWaiters {
    const_fn! {
        pub(crate) fn new() -> IoWaiters {
            IoWaiters { count: AtomicUsize::new(0), is_m_blocked: AtomicU32::new(0) }
        }
    }

    /// Counts a waiter that is about to publish itself: step 1 of a waiter.
    #[inline]
    pub(crate) fn add(&self) {
        // PAIR waiters: before the load of the flag in one SeqCst order with the M that leaves the
        // poller.
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Uncounts a waiter whose wait has ended, or which need not wait.
    #[inline]
    pub(crate) fn remove(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether there is a waiter.
    /// Go: netpollAnyWaiters.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Returns whether an M with a P should poll: there is a waiter, and no M is blocked in the
    /// poller.
    #[inline]
    pub(crate) fn should_poll(&self) -> bool {
        self.has_any() && self.is_m_blocked.load(Ordering::Relaxed) == 0
    }

    /// Records that an M is about to block in the poller, if an M in the poller is wanted: step 3
    /// of an M without work. Returns whether it is wanted. `are_ps_idle` returns whether every P is
    /// idle or stalled. Called under the lock, in the same critical section in which the M enters
    /// the list of idle Ms, and only if the role of poller is free.
    /// Go: sched.lastpoll.Swap(0) in findRunnable.
    pub(crate) fn block_m_if_wanted(&self, are_ps_idle: impl FnOnce() -> bool) -> bool {
        // PAIR waiters: after the store that cleared the flag in one SeqCst order with a waiter
        // that counts itself.
        if !are_ps_idle() || self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        // A waiter that does not see the flag set wakes an M needlessly.
        self.is_m_blocked.store(1, Ordering::Relaxed);
        true
    }

    /// Records that no M waits for events in the poller, so that other Ms may poll. Called under
    /// the lock by a waker that takes the M out of the list of idle Ms, or by the M when it gives
    /// the role of poller up.
    pub(crate) fn unblock_m(&self) {
        // PAIR waiters: before the next check for waiters in one SeqCst order with a waiter that
        // counts itself.
        self.is_m_blocked.store(0, Ordering::SeqCst);
    }

    /// Returns whether a waiter that has counted itself must wake an M: steps 2 and 3 of a waiter,
    /// up to the wake-up.
    pub(crate) fn is_poller_wanted_after_count(&self, are_ps_idle: impl FnOnce() -> bool) -> bool {
        barrier::light();
        self.is_poller_wanted(are_ps_idle)
    }

    /// Returns whether an M should be blocked in the poller and none is: step 3 of a thread that
    /// has made a P idle and has passed a heavy barrier since.
    pub(crate) fn is_poller_wanted(&self, are_ps_idle: impl FnOnce() -> bool) -> bool {
        // PAIR waiters: after the count of the waiter in one SeqCst order with the M that leaves
        // the poller.
        self.has_any() && self.is_m_blocked.load(Ordering::SeqCst) == 0 && are_ps_idle()
    }
}
