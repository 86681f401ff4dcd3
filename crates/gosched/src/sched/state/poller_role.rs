//! Which M sleeps in the poller, and whether one is wanted there. `run::poll` has the protocol.

use crate::gmp::m::M;
use crate::gmp::{poll_desc, poll_role};
use crate::sched::state::global::{INTERRUPTED, Locked, SCHED};
use crate::sys::poller::{self, Poller};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// An M sleeps in the poller, and no waker has taken it out of the list of idle Ms. Written under the
/// scheduler's lock.
/// Go: sched.lastpoll == 0.
static POLLER_BLOCKED: AtomicBool = AtomicBool::new(false);

/// How many busy Ps had not passed the scheduler between sysmon's last two looks.
pub(crate) static STALLED_PS: AtomicU32 = AtomicU32::new(0);

/// Goroutines that I/O has made ready wait for a P, and nobody has come for them yet.
pub(crate) static IO_UNCLAIMED: AtomicBool = AtomicBool::new(false);

/// Whether an M with a P should look: somebody waits, and nobody sleeps in the poller.
#[inline]
pub(crate) fn should_poll() -> bool {
    poll_desc::has_waiters() && !POLLER_BLOCKED.load(Ordering::Relaxed)
}

/// Whether somebody should make room for goroutines that I/O has made ready.
pub(crate) fn is_io_unclaimed() -> bool {
    IO_UNCLAIMED.load(Ordering::Relaxed) && SCHED.attention() & INTERRUPTED != 0
}

/// Somebody has come for those who go before others.
pub(crate) fn mark_io_claimed() {
    if IO_UNCLAIMED.load(Ordering::Relaxed) {
        IO_UNCLAIMED.store(false, Ordering::Relaxed);
    }
}

/// Gives an M that is about to sleep the role of poller, where an M in the poller is wanted and there is none.
/// Returns whether it did. Under the lock, in the step in which the M enters the list of idle Ms.
/// Go: sched.lastpoll.Swap(0) in findRunnable.
pub(crate) fn take_poll_role(locked: &mut Locked, m: &'static M) -> bool {
    if !locked.poller.is_free() || !are_ps_idle_or_stalled() || !poll_desc::has_waiters() {
        return false;
    }
    locked.poller.take(m, &m.in_poller);
    // PAIR waiters: one order for this and who waits.
    POLLER_BLOCKED.store(true, Ordering::SeqCst);
    true
}

/// A waker takes `m` out of the list of idle Ms. If `m` holds the role of poller, it keeps the role until its thread
/// has left the kernel; but the M will not wait for events any longer, so others may look. Under the lock.
pub(crate) fn mark_poller_leaving(locked: &Locked, m: &'static M) {
    if locked.poller.is_held_by(m) {
        POLLER_BLOCKED.store(false, Ordering::Relaxed);
    }
}

/// The M has left the poller: it gives the role up, if it holds the role. Returns whether it did. Under the lock.
pub(crate) fn give_up_poll_role(locked: &mut Locked, m: &'static M) -> bool {
    let held = locked.poller.give_up(m, &m.in_poller);
    if held {
        POLLER_BLOCKED.store(false, Ordering::Relaxed);
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

/// Whether somebody should sleep in the poller, and nobody does or will. Asked by whoever has made a P idle
/// without going to sleep, after a heavy barrier; and by whoever waits, after it has counted itself.
pub(crate) fn is_poller_wanted() -> bool {
    // PAIR waiters: one order for this and the M that sleeps.
    poll_desc::has_waiters() && !POLLER_BLOCKED.load(Ordering::SeqCst) && are_ps_idle_or_stalled()
}

/// All Ps are idle, or will not pass the scheduler soon.
fn are_ps_idle_or_stalled() -> bool {
    let stalled = STALLED_PS.load(Ordering::Relaxed);
    (SCHED.idle_ps.load(Ordering::Relaxed) + stalled) as usize >= SCHED.procs()
}
