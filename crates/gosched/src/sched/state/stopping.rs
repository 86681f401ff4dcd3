//! Whether the world is to stop, and how many Ps have yet to. `world` has the protocol.

use crate::gmp::p::{P, PStatus};
use crate::sched::state::global::{Locked, SCHED, STOPPED, STOPPING};

#[inline]
pub(crate) fn is_stopping() -> bool {
    SCHED.attention() & STOPPING != 0
}

/// A P more has stopped.
pub(crate) fn count_stopped(locked: &mut Locked, p: &'static P) {
    p.set_status(PStatus::Stopped);
    locked.stop_wait -= 1;
    if locked.stop_wait == 0 {
        STOPPED.wake();
    }
}
