//! Between a P's own queue and the global one: what is taken, what is spilled.

use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::run_queue::RunQueue;

/// How many Gs of the global queue a P takes at a time: its share and one, at most half of what its
/// own queue holds (Go's `globrunqgetbatch`).
pub(crate) fn batch_size(queued: usize, procs: usize, capacity: usize) -> usize {
    (queued / procs.max(1) + 1).min(queued).min(capacity / 2)
}

/// A P's share of the global queue: the first to be run, the rest into its own queue, which is empty.
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

/// Finds a place for `g`, for which the queue had none: takes the older half out and gives it to
/// `away`, which is to take `g` too; unless a thief has made room.
/// Go: runqputslow.
pub(crate) fn spill_half<const CAP: usize>(
    queue: &RunQueue<G, CAP>,
    g: &'static G,
    away: impl FnOnce(&[Option<&'static G>]),
) {
    let mut half = [None; CAP];
    loop {
        let count = queue.take_half(&mut half);
        if count > 0 {
            return away(&half[..count]);
        }
        if queue.push(g) {
            return;
        }
    }
}

#[cfg(test)]
#[path = "spill_tests.rs"]
mod tests;
