//! Whether the world is stopping, and how many Ps have not stopped yet: the functions with which
//! an M stops. `protocol::world_stop` describes the protocol. This module never stops the world.

use crate::gmp::p::{P, PStatus};
use crate::gmp::token::OwnedP;
use crate::probe;
use crate::probe::event::EventKind;
use crate::sched::state::global::{Locked, SCHED, STOP_NOTE};

#[inline]
pub(crate) fn is_stopping() -> bool {
    SCHED.attention.is_stopping()
}

/// Records that `p` has stopped, and wakes the thread that stops the world if it was the last.
pub(crate) fn count_stopped(locked: &mut Locked, p: &'static P) {
    p.change_status(PStatus::Stopped);
    locked.stop_count.count_stopped(&SCHED.attention, &STOP_NOTE);
}

/// Releases the P if the world is stopping. Called on g0; the M then sleeps as an idle M.
/// Go: gcstopm.
pub(crate) fn release_p_for_stop(p: OwnedP<'_>) {
    let mut locked = SCHED.lock.lock();
    if !is_stopping() {
        return;
    }
    let (p, on) = p.release();
    if on.spinning.is_spinning() && probe::is_recording() {
        on.record(EventKind::StopSpinning { found: false });
    }
    on.spinning.stop_without_work(&SCHED.counts);
    on.carrier.set_preempt_pending(false);
    count_stopped(&mut locked, p);
}
