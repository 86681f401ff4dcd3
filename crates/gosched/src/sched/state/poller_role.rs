//! Which M sleeps in the poller, and whether an M should. `protocol::poll_role` and
//! `protocol::io_waiters` describe the protocols. This module never polls: `run::poll` and
//! `monitor::poll_watch` do.

use crate::gmp::m::M;
use crate::gmp::poll_desc::IO_WAITERS;
use crate::protocol::attention::AttentionFlag;
use crate::protocol::poll_role;
use crate::sched::state::global::{Locked, SCHED};
use crate::sys::poller::{self, Poller};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of stalled Ps: busy Ps that did not pass through the scheduler between sysmon's last two
/// checks. Written by sysmon.
pub(crate) static STALLED_PS: AtomicU32 = AtomicU32::new(0);

/// Whether Gs that I/O made ready while all Ps were busy wait in the global queue, and no M has
/// taken one since.
pub(crate) static IO_UNCLAIMED: AtomicBool = AtomicBool::new(false);

/// Returns whether an M with a P should poll: a waiter exists, and no M sleeps in the poller.
#[inline]
pub(crate) fn should_poll() -> bool {
    IO_WAITERS.should_poll()
}

/// Returns whether a running G should make room for Gs that I/O made ready.
pub(crate) fn is_io_unclaimed() -> bool {
    IO_UNCLAIMED.load(Ordering::Relaxed) && SCHED.attention.is_set(AttentionFlag::Interrupted)
}

/// Clears [`IO_UNCLAIMED`]. Called by an M that takes a G with priority.
pub(crate) fn mark_io_claimed() {
    if IO_UNCLAIMED.load(Ordering::Relaxed) {
        IO_UNCLAIMED.store(false, Ordering::Relaxed);
    }
}

/// Gives the role of poller to `m`, which is about to sleep, if an M in the poller is wanted and
/// the role is free. Returns whether `m` got the role. Called under the lock, in the same critical
/// section in which `m` enters the list of idle Ms.
/// Go: sched.lastpoll.Swap(0) in findRunnable.
pub(crate) fn take_poll_role(locked: &mut Locked, m: &'static M) -> bool {
    let takes = locked.poller.is_free() && IO_WAITERS.block_m_if_wanted(are_ps_idle_or_stalled);
    if takes {
        locked.poller.take(m, &m.in_poller);
    }
    takes
}

/// Records that `m`, if it holds the role of poller, no longer waits for events, so that other Ms
/// may poll. Called under the lock by a waker that takes `m` out of the list of idle Ms. `m` keeps
/// the role until its thread has left the kernel.
pub(crate) fn mark_poller_leaving(locked: &Locked, m: &'static M) {
    if locked.poller.is_held_by(m) {
        IO_WAITERS.unblock_m();
    }
}

/// Takes the role of poller from `m`, if `m` holds it. Returns whether `m` held it. Called under
/// the lock by the thread of `m`, after it has left the poller.
pub(crate) fn give_up_poll_role(locked: &mut Locked, m: &'static M) -> bool {
    let held = locked.poller.give_up(m, &m.in_poller);
    if held {
        IO_WAITERS.unblock_m();
    }
    held
}

/// Wakes an M that was taken out of the list of idle Ms.
/// Go: notewakeup(&mp.park), or netpollBreak for the M in the poller.
pub(crate) fn wake_m(m: &'static M) {
    poll_role::wake(&m.note, &m.in_poller, || {
        poller::existing().into_iter().for_each(Poller::interrupt)
    });
}

/// Returns whether a waiter that has counted itself must wake an M, so that the M sleeps in the
/// poller.
pub(crate) fn is_poller_wanted_after_count() -> bool {
    IO_WAITERS.is_poller_wanted_after_count(are_ps_idle_or_stalled)
}

/// Returns whether an M should sleep in the poller and none does. Called after a heavy barrier by a
/// thread that has made a P idle without going to sleep.
pub(crate) fn is_poller_wanted() -> bool {
    IO_WAITERS.is_poller_wanted(are_ps_idle_or_stalled)
}

/// Returns whether every P is idle or stalled.
fn are_ps_idle_or_stalled() -> bool {
    let stalled = STALLED_PS.load(Ordering::Relaxed);
    (SCHED.counts.idle_ps() + stalled) as usize >= SCHED.procs()
}
