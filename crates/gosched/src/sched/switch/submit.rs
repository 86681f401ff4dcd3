//! Puts Gs into queues: `run_next` and the ring of a P, and the global queue. This module never
//! wakes an M: its callers do.

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::record::record;
use crate::gmp::token::{OnM, OwnedP};
use crate::probe;
use crate::probe::event::EventKind;
use crate::probe::field::{Place, Span, Waker};
use crate::protocol::run_queue::CAPACITY;
use crate::sched::state::global::{self, SCHED};
use crate::sched::state::seeded;
use crate::sched::switch::spill;

/// Why a G goes into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submission {
    /// It starts.
    Spawn,
    /// The caller has made it ready.
    Ready,
    /// A timer has made it ready.
    Timer,
    /// I/O has made it ready.
    Io,
    /// Its wait was over before it had begun.
    NoWait,
    /// It ran, and can run on.
    Requeue,
}

/// Makes `g` the next G to run on the M's P, and moves the G that was next to the tail of the P's
/// queue. If the M has no P, puts `g` at the tail of the global queue.
/// Go: runqput(next = true).
#[inline]
pub(crate) fn push_next(mut on: OnM<'_>, g: &'static G, why: Submission) {
    match on.own_p() {
        Some(p) => push_next_on(p, g, why),
        None => push_global(g, why),
    }
}

/// As [`push_next`], for a caller that has the P.
#[inline]
pub(crate) fn push_next_on(p: OwnedP<'_>, g: &'static G, why: Submission) {
    global::check_runnable(g);
    if probe::is_watched() {
        return push_next_watched(p, g, why);
    }
    if let Some(kicked) = p.queue().push_next(g) {
        push_local(p, kicked);
    }
}

/// As [`push_next_on`], while events are recorded, or in the seeded mode.
#[cold]
#[inline(never)]
fn push_next_watched(mut p: OwnedP<'_>, g: &'static G, why: Submission) {
    let m = p.on_m().m();
    let is_recording = probe::is_recording();
    if seeded::draw_push_to_tail(m) {
        push_local_recorded(p, g, |to| submission(g, why, to));
    } else {
        if is_recording {
            m.record(submission(g, why, Place::RunNext));
        }
        if let Some(kicked) = p.queue().push_next(g) {
            let displaced = |to| EventKind::Displace { g: kicked.id(), by: g.id(), to };
            push_local_recorded(p, kicked, displaced);
        }
    }
    if matches!(why, Submission::Spawn | Submission::Ready) {
        seeded::draw_yield(m);
    }
}

/// As [`push_local`]. Records the event that `event` returns, while events are recorded.
fn push_local_recorded(mut p: OwnedP<'_>, g: &'static G, event: impl FnOnce(Place) -> EventKind) {
    if probe::is_recording() {
        let (head, tail) = p.queue().counters();
        // Takers only make more room.
        let is_full = tail.wrapping_sub(head) as usize >= CAPACITY;
        let to = if is_full { Place::Spill } else { Place::Queue(tail) };
        p.on_m().record(event(to));
    }
    push_local(p, g);
}

/// Puts `g` at the tail of the queue of the M's P, or of the global queue if the M has no P.
/// Go: runqput(next = false).
pub(crate) fn push(mut on: OnM<'_>, g: &'static G, why: Submission) {
    match on.own_p() {
        Some(p) => push_local_recorded(p, g, |to| submission(g, why, to)),
        None => push_global(g, why),
    }
}

#[inline]
fn push_local(p: OwnedP<'_>, g: &'static G) {
    global::check_runnable(g);
    if !p.queue().push(g) {
        spill_to_global(p, g);
    }
}

/// Moves the older half of a full queue, and `g`, to the global queue in one critical section.
/// Go: runqputslow.
#[cold]
#[inline(never)]
fn spill_to_global(mut p: OwnedP<'_>, g: &'static G) {
    let on = p.on_m().m();
    spill::spill_half(p.queue(), g, |half, position| {
        let mut locked = SCHED.lock.lock();
        if probe::is_recording() {
            on.record(spill_event(g, half, position));
        }
        for g in half.iter().flatten() {
            global::check_runnable(g);
            locked.queue.push_back(g);
        }
        locked.push(g);
    });
}

/// Puts `g` at the tail of the global queue. Called with preemption off, or by an ordinary thread.
/// Go: globrunqput.
pub(crate) fn push_global(g: &'static G, why: Submission) {
    let mut locked = SCHED.lock.lock();
    record(|| submission(g, why, Place::Global));
    locked.push(g);
}

/// Returns the event of a G that goes into a queue.
pub(crate) fn submission(g: &'static G, why: Submission, to: Place) -> EventKind {
    let id = g.id();
    let by = match why {
        Submission::Spawn => return EventKind::Spawn { g: id, parent: g.parent(), to },
        Submission::Requeue => return EventKind::Enqueue { g: id, to },
        Submission::Ready => match current::goroutine_id() {
            0 => Waker::Thread,
            id => Waker::Goroutine(id),
        },
        Submission::Timer => Waker::Timer,
        Submission::Io => Waker::Io,
        Submission::NoWait => Waker::NoWait,
    };
    EventKind::Ready { g: id, by, to }
}

/// Returns the event of `half`, the Gs from `position` of a full queue, which spill together with
/// `g`.
fn spill_event(g: &'static G, half: &[Option<&'static G>], position: u32) -> EventKind {
    let id = |place: Option<&Option<&'static G>>| place.copied().flatten().map_or(0, G::id);
    EventKind::Spill {
        g: g.id(),
        moved: Span { position, count: half.len() as u32 },
        first: id(half.first()),
        last: id(half.last()),
        len: CAPACITY as u32,
    }
}
