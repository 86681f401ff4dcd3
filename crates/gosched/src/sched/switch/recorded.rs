//! The events of a switch, while events are recorded. This module never switches: the module above
//! does.

use crate::gmp::g::G;
use crate::gmp::m::Departure;
use crate::gmp::p::P;
use crate::gmp::token::{OnM, OwnedP};
use crate::probe::event::EventKind;
use crate::probe::field::{GlobalReason, Place, Source, Span};
use crate::protocol::run_queue::{Stolen, TimeSlice};
use crate::sched::state::global::SCHED;
use std::sync::atomic::Ordering;

/// Takes the next G from the P's own queue, and says where it was.
pub(crate) fn take(p: OwnedP<'_>) -> Option<(&'static G, TimeSlice, Source)> {
    if let Some(g) = p.queue().take_run_next() {
        return Some((g, TimeSlice::Inherited, Source::RunNext));
    }
    let (g, position) = p.queue().take_first_and_position()?;
    Some((g, TimeSlice::New, Source::Queue(position)))
}

/// Records that the M is about to run `g`. The slice has started.
#[cold]
#[inline(never)]
pub(crate) fn record_run(on: OnM<'_>, g: &'static G) {
    let (slice, inherits) = on.p().map_or((0, false), |p| (p.tick(), p.is_slice_inherited()));
    let global = SCHED.queued.load(Ordering::Relaxed) as u32;
    let from = on.take_source();
    on.record(EventKind::Run { g: g.id(), from, slice, inherits, global });
}

/// Records that `g` goes into a queue.
#[cold]
#[inline(never)]
pub(crate) fn record_enqueue(on: OnM<'_>, g: &'static G, to: Place) {
    on.record(EventKind::Enqueue { g: g.id(), to });
}

/// Records that `g` yields, and whether it continues at once.
pub(crate) fn record_yield(on: OnM<'_>, g: &'static G, continues: bool) {
    on.record(EventKind::Yield { g: g.id(), continues });
}

/// Records why a G leaves its M, unless its caller has. Returns the departure to be carried out.
#[inline(never)]
pub(crate) fn record_departure(on: OnM<'_>, departure: Departure) -> Departure {
    match departure {
        Departure::Park { g, .. } => {
            on.record(EventKind::Park { g: g.id(), reason: g.reason() });
        }
        Departure::YieldLocally { g } => {
            on.record(EventKind::Yield { g: g.id(), continues: false });
        }
        Departure::Exit { g } => on.record(EventKind::Exit { g: g.id() }),
        Departure::NoStack { g } => on.record(EventKind::NoStack { g: g.id() }),
        Departure::Yield { g, held } => return Departure::RecordedYield { g, held },
        Departure::None
        | Departure::RecordedYield { .. }
        | Departure::Stopped { .. }
        | Departure::Interrupted { .. } => {}
    }
    departure
}

/// Records what the M's P has stolen from `victim`.
#[cold]
pub(crate) fn record_steal(on: OnM<'_>, victim: &'static P, stolen: &Stolen<G>) {
    on.set_source(Source::Stolen);
    let taken = Span { position: stolen.position, count: stolen.count };
    let (g, len, to) = (stolen.g.id(), stolen.len, stolen.to);
    on.record(EventKind::Steal { g, victim: victim.id, taken, len, to });
}

/// Records that the P has taken `first`, and others that are now in its queue, from the global
/// queue, which held `before` Gs and now holds `after`. Called under the lock.
#[cold]
pub(crate) fn record_take(
    mut p: OwnedP<'_>,
    first: Option<&'static G>,
    why: GlobalReason,
    before: usize,
    after: usize,
) {
    let Some(first) = first else { return };
    let (_, tail) = p.queue().counters();
    let count = (before - after).saturating_sub(1) as u32;
    let others = Span { position: tail.wrapping_sub(count), count };
    p.on_m().record(EventKind::TakeGlobal { g: first.id(), why, others, len: before as u32 });
}
