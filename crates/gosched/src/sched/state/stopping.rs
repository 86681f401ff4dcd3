//! Whether the world is stopping, and how many Ps have not stopped yet. `world` describes the
//! protocol.

use crate::gmp::m::M;
use crate::gmp::p::{P, PStatus};
use crate::sched::state::global::{Locked, SCHED, STOP_NOTE, STOPPING};
use std::sync::atomic::Ordering;

#[inline]
pub(crate) fn is_stopping() -> bool {
    SCHED.attention() & STOPPING != 0
}

/// Records that `p` has stopped, and wakes the thread that stops the world if it was the last.
pub(crate) fn count_stopped(locked: &mut Locked, p: &'static P) {
    p.set_status(PStatus::Stopped);
    locked.stop_wait -= 1;
    if locked.stop_wait == 0 {
        STOP_NOTE.wake();
    }
}

/// Releases the P of `m` if the world is stopping. Called on g0; `m` then sleeps as an idle M.
/// Go: gcstopm.
pub(crate) fn release_p_for_stop(m: &'static M) {
    let mut locked = SCHED.lock.lock();
    if !is_stopping() {
        return;
    }
    let Some(p) = m.release_p() else { return };
    if m.spinning.load(Ordering::Relaxed) {
        m.spinning.store(false, Ordering::Relaxed);
        SCHED.spinning.fetch_sub(1, Ordering::Relaxed);
    }
    m.carrier.set_preempt_pending(false);
    count_stopped(&mut locked, p);
}
