//! A goroutine that cannot be moved stops together with its M, which sleeps until it is given a P.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::state::GState;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::wake;
use crate::sched::wake::give;
use std::ptr;
use std::sync::atomic::Ordering;

/// The calling goroutine has no P, and cannot be moved: its G is queued as only this M's, and the M sleeps
/// right here until somebody brings a P.
pub(crate) fn wait_for_p_in_place(m: &'static M, g: &'static G) {
    let pinned = pin_and_enqueue(&mut SCHED.lock.lock(), m, g, false);
    wake::wake_if_idle();
    sleep_pinned(m, g, pinned);
}

/// Queues a goroutine that is stopped together with its M, before all others or in its turn. Returns what
/// [`sleep_pinned`] wants, which is the next thing that the M does.
pub(crate) fn pin_and_enqueue(
    locked: &mut Locked,
    m: &'static M,
    g: &'static G,
    first: bool,
) -> *mut () {
    let pinned = g.pinned.swap(ptr::from_ref(m).cast_mut().cast(), Ordering::Relaxed);
    g.transition(GState::Running, GState::Runnable);
    locked.count_stopped_m(1);
    if first {
        locked.push_interrupted(g)
    } else {
        locked.push_stopped(g)
    }
    pinned
}

/// Sleeps until somebody brings a P, and goes on with the goroutine.
pub(crate) fn sleep_pinned(m: &'static M, g: &'static G, pinned: *mut ()) {
    m.sleep(None);
    SCHED.lock.lock().count_stopped_m(-1);
    give::acquire_next_p(m);
    if let Some(p) = m.p() {
        p.start_slice();
    }
    g.pinned.store(pinned, Ordering::Relaxed);
    g.transition(GState::Runnable, GState::Running);
}
