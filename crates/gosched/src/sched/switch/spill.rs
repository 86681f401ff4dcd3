//! Moves Gs between a P's own queue and the global queue. This module never takes the scheduler's
//! lock: its callers do.

use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::protocol::run_queue::RunQueue;

/// Returns how many Gs a P takes from the global queue at a time: its share plus one, at most half
/// the capacity of its own queue (Go's `globrunqgetbatch`).
pub(crate) fn batch_size(queued: usize, procs: usize, capacity: usize) -> usize {
    (queued / procs.max(1) + 1).min(queued).min(capacity / 2)
}

/// Takes a P's share of the global queue: returns the first G and puts the rest into the P's own
/// queue, which must be empty.
/// Go: globrunqgetbatch, then runqputbatch.
pub(crate) fn refill<const CAP: usize>(
    queue: &RunQueue<G, CAP>,
    global: &mut GList,
    procs: usize,
) -> Option<&'static G> {
    let count = batch_size(global.len(), procs, CAP);
    let first = global.pop_front()?;
    for _ in 1..count {
        if let Some(g) = global.pop_front()
            && !queue.push(g)
        {
            global.push_front(g);
            break;
        }
    }
    Some(first)
}

/// Finds a place for `g`, which did not fit into `queue`. Takes the older half out of the full
/// queue and passes it, with its position, to `away`, which must queue `g` as well. If a thief has
/// made room meanwhile, pushes `g` into `queue` instead.
/// Go: runqputslow.
pub(crate) fn spill_half<const CAP: usize>(
    queue: &RunQueue<G, CAP>,
    g: &'static G,
    away: impl FnOnce(&[Option<&'static G>], u32),
) {
    let mut half = [None; CAP];
    loop {
        if let Some((count, position)) = queue.take_half(&mut half) {
            return away(&half[..count], position);
        }
        if queue.push(g) {
            return;
        }
    }
}

#[cfg(test)]
#[path = "spill_tests.rs"]
mod tests;
