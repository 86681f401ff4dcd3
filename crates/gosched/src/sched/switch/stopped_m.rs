//! A G that cannot be moved stops together with its M. The M sleeps until it is handed a P.

use crate::gmp::g::G;
use crate::gmp::state::GState;
use crate::gmp::token::OnM;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::wake;
use crate::sched::wake::give;
use std::ptr;
use std::sync::atomic::Ordering;

/// Waits for a P, for a G that has none and cannot be moved. Queues the G as pinned to its M, and
/// the M sleeps here until it is handed a P.
pub(crate) fn wait_for_p_in_place(on: &mut OnM<'_>, g: &'static G) {
    let pinned = pin_and_enqueue(&mut SCHED.lock.lock(), on, g, false);
    wake::wake_if_idle();
    sleep_pinned(on, g, pinned);
}

/// Pins `g` to its M and queues it: before all other Gs if `first` is set, otherwise in its turn.
/// Returns the previous value of `G::pinned`. The M must call [`sleep_pinned`] with that value
/// next.
pub(crate) fn pin_and_enqueue(
    locked: &mut Locked,
    on: &OnM<'_>,
    g: &'static G,
    first: bool,
) -> *mut () {
    let pinned = g.pinned.swap(ptr::from_ref(on.m()).cast_mut().cast(), Ordering::Relaxed);
    g.transition(GState::Running, GState::Runnable);
    locked.count_stopped_m(1);
    if first {
        locked.push_interrupted(g)
    } else {
        locked.push_stopped(g)
    }
    pinned
}

/// Sleeps until the M is handed a P, then continues running `g`. `pinned` is the value that
/// [`pin_and_enqueue`] returned.
pub(crate) fn sleep_pinned(on: &mut OnM<'_>, g: &'static G, pinned: *mut ()) {
    on.sleep(None);
    SCHED.lock.lock().count_stopped_m(-1);
    give::acquire_next_p(on);
    if let Some(p) = on.own_p() {
        p.start_slice();
    }
    g.pinned.store(pinned, Ordering::Relaxed);
    g.transition(GState::Runnable, GState::Running);
}
