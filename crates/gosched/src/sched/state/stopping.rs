//! Whether the world is to stop, and how many Ps have yet to. `world` has the protocol.

use crate::gmp::m::M;
use crate::gmp::p::{P, PStatus};
use crate::sched::state::global::{Locked, SCHED, STOP_NOTE, STOPPING};
use std::sync::atomic::Ordering;

#[inline]
pub(crate) fn is_stopping() -> bool {
    SCHED.attention() & STOPPING != 0
}

/// A P more has stopped.
pub(crate) fn count_stopped(locked: &mut Locked, p: &'static P) {
    p.set_status(PStatus::Stopped);
    locked.stop_wait -= 1;
    if locked.stop_wait == 0 {
        STOP_NOTE.wake();
    }
}

/// An M on g0, while the world stops: gives its P up and sleeps.
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
