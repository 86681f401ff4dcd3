//! Where the next G comes from, in Go's order.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::sched::run::{idle, poll, steal, timers};
use crate::sched::state::global::{CROWDED, FAIRNESS, INTERRUPTED, SCHED};
use crate::sched::state::{poller_role, seeded, stopping, timekeeper};
use crate::sched::switch::{take_global, take_slice};
use crate::sched::wake;
use std::sync::atomic::Ordering;

/// A G to run, for an M on g0. Sleeps until there is one. `None`: the M is to end, and has no P.
pub(crate) fn find_runnable(m: &'static M) -> Option<&'static G> {
    loop {
        if stopping::is_stopping() {
            stopping::stop_here(m);
        }
        let Some(p) = m.p() else {
            if !idle::sleep_until_given_a_p(m) {
                return None;
            }
            continue;
        };
        // Whoever a timer has woken runs before a fair share of the others: somebody may have made room for it.
        let woken = timekeeper::are_due() && timers::run_due(m);
        if poll::is_due(p) {
            poll::look_first(m);
        }
        let found = others_turn(p)
            .or_else(|| woken.then(|| own_next(p)).flatten())
            .or_else(|| fair_share(p))
            .or_else(|| seeded::elsewhere_first(m).then(|| steal_some(m, p)).flatten())
            .or_else(|| (SCHED.attention() != 0).then(|| own_next(p)).flatten())
            .or_else(|| io_before_interrupted(m, p))
            .or_else(|| first_of_all(p))
            .or_else(|| own(p))
            .or_else(|| global_share(p))
            .or_else(|| woken_by_io(m, p))
            .or_else(|| steal_some(m, p));
        if let Some(g) = found {
            return Some(g);
        }
        if let Some(g) = idle::rest(m, p) {
            return Some(g);
        }
    }
}

/// After so many turns of a pair that keeps making each other ready, one of the others. (Go's pairs
/// are stopped after 10 ms.)
fn others_turn(p: &'static P) -> Option<&'static G> {
    if !p.is_pair_over() {
        return None;
    }
    p.start_slice();
    let global = || SCHED.lock.lock().pop();
    let g = global().or_else(|| p.queue.take_first())?;
    Some(g)
}

/// Every 61st time one G of the global queue, so that two Gs that keep a P busy by making each other
/// ready do not keep it for ever.
fn fair_share(p: &'static P) -> Option<&'static G> {
    if !p.tick().is_multiple_of(FAIRNESS) || SCHED.queued.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let g = SCHED.lock.lock().pop()?;
    p.start_slice();
    Some(g)
}

/// The one to run next, where others may have to come before the P's own queue.
fn own_next(p: &'static P) -> Option<&'static G> {
    let g = p.queue.take_own_next()?;
    p.inherit_slice();
    Some(g)
}

/// One that was interrupted for another's sake, or one of many that were stopped with their Ms.
fn first_of_all(p: &'static P) -> Option<&'static G> {
    if SCHED.attention() & (INTERRUPTED | CROWDED) == 0 {
        return None;
    }
    p.ahead.store(0, Ordering::Relaxed);
    let g = SCHED.lock.lock().pop_first()?;
    p.start_slice();
    Some(g)
}

/// So many in a row go before one that was interrupted.
const IO_AHEAD: u32 = 8;

/// Whoever I/O has made ready, before one that was interrupted: it would only be interrupted again.
fn io_before_interrupted(m: &'static M, p: &'static P) -> Option<&'static G> {
    let ahead = p.ahead.load(Ordering::Relaxed);
    if SCHED.attention() & INTERRUPTED == 0 || ahead >= IO_AHEAD {
        return None;
    }
    p.ahead.store(ahead + 1, Ordering::Relaxed);
    woken_by_io(m, p)
}

/// The one to run next, then the P's own queue.
fn own(p: &'static P) -> Option<&'static G> {
    let (g, slice) = p.queue.take()?;
    take_slice(p, slice);
    Some(g)
}

/// A batch of the global queue.
fn global_share(p: &'static P) -> Option<&'static G> {
    if SCHED.queued.load(Ordering::Relaxed) == 0 {
        return None;
    }
    SCHED.lock.hold();
    let g = take_global(p);
    // SAFETY: held — above.
    unsafe { SCHED.lock.release() };
    if g.is_some() {
        p.start_slice();
    }
    g
}

/// What has become ready by I/O.
fn woken_by_io(m: &'static M, p: &'static P) -> Option<&'static G> {
    if !poller_role::is_worth_a_look() {
        return None;
    }
    let g = poll::look(m)?;
    p.start_slice();
    Some(g)
}

/// From other Ps, if not too many look already.
fn steal_some(m: &'static M, p: &'static P) -> Option<&'static G> {
    if !m.spinning.load(Ordering::Relaxed) {
        if !wake::may_spin() {
            return None;
        }
        wake::start_spinning(m);
    }
    let own = p.queue.len();
    let g = steal::steal(p)?;
    p.steals.add(1);
    p.stolen.add(p.queue.len().saturating_sub(own) as u64 + 1);
    p.start_slice();
    Some(g)
}
