//! A G that cannot be moved stops together with its M. The M sleeps until it is handed a P. This
//! module never releases a P: the M has already released or lost it.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::record::record;
use crate::gmp::state::GState;
use crate::gmp::token::OnM;
use crate::probe;
use crate::probe::event::EventKind;
use crate::probe::field::{Place, Source};
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::switch::recorded;
use crate::sched::wake;
use crate::sched::wake::give;

/// Waits for a P, for a G that has none and cannot be moved. Queues the G as pinned to its M, and
/// the M sleeps here until it is handed a P.
pub(crate) fn wait_for_p_in_place(mut on: OnM<'_>, g: &'static G) {
    let before = pin_and_enqueue(&mut SCHED.lock.lock(), on.lend(), g, false);
    wake::wake_if_idle();
    sleep_pinned(on, g, before);
}

/// Pins `g` to its M and queues it: before all other Gs if `first` is set, otherwise in its turn.
/// Returns the previous value of `G::pinned`. The M must call [`sleep_pinned`] with that value
/// next.
pub(crate) fn pin_and_enqueue(
    locked: &mut Locked,
    on: OnM<'_>,
    g: &'static G,
    first: bool,
) -> Option<&'static M> {
    let before = g.pinned.replace(Some(on.m()));
    g.transition(GState::Running, GState::Runnable);
    locked.count_stopped_m(1);
    let to = if first { Place::GlobalFirst } else { Place::Global };
    record(|| EventKind::Enqueue { g: g.id(), to });
    if first {
        locked.push_interrupted(g)
    } else {
        locked.push_stopped(g)
    }
    before
}

/// Sleeps until the M is handed a P, then continues running `g`. `before` is the value that
/// [`pin_and_enqueue`] returned.
pub(crate) fn sleep_pinned(mut on: OnM<'_>, g: &'static G, before: Option<&'static M>) {
    on.sleep(None);
    SCHED.lock.lock().count_stopped_m(-1);
    give::acquire_next_p(on.lend());
    if let Some(p) = on.own_p() {
        p.start_slice();
    }
    g.pinned.replace(before);
    if probe::is_recording() {
        on.set_source(Source::InPlace);
        recorded::record_run(on, g);
    }
    g.transition(GState::Runnable, GState::Running);
}
