//! A barrier that a fixed number of goroutines or threads pass together, again and again. A barrier
//! never lets a caller through before the last one has arrived: a wait has no time limit.

use super::parking::{Guarded, WaitOptions};
use crate::block::before_wait;
use crate::block::waiter::WaitQueue;
use crate::probe::wait_reason::WaitReason;
use std::fmt;

/// A point at which a fixed number of goroutines or threads wait for each other.
///
/// The barrier can be used repeatedly.
pub struct Barrier {
    state: Guarded<State>,
    size: usize,
}

#[derive(Debug)]
struct State {
    arrived: usize,
    queue: WaitQueue,
}

impl Barrier {
    /// Creates a barrier for `size` callers. With a size of 0 or 1, [`Barrier::wait`] does not
    /// block.
    pub const fn new(size: usize) -> Barrier {
        Barrier { state: Guarded::new(State { arrived: 0, queue: WaitQueue::new() }), size }
    }

    /// Blocks until the last of the barrier's `size` callers has arrived.
    ///
    /// [`BarrierWaitResult::is_leader`] returns `true` for one of them, the last to arrive.
    pub fn wait(&self) -> BarrierWaitResult {
        before_wait();
        let wait = WaitOptions {
            reason: WaitReason::Barrier,
            holders: std::ptr::null(),
            queue: |state: &mut State| &mut state.queue,
            first: false,
            ticket: std::ptr::null_mut(),
            until: None,
            gave_up: None,
        };
        let waited = self.state.wait(&wait, |held| {
            held.arrived += 1;
            if held.arrived < self.size {
                return None;
            }
            held.arrived = 0;
            while let Some(taken) = held.queue.fire_next() {
                held.ready(taken.g());
            }
            Some(())
        });
        BarrierWaitResult(waited.is_ok())
    }
}

/// The result of [`Barrier::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns whether the caller is the leader: the last of the `size` callers to arrive.
    pub fn is_leader(self) -> bool {
        self.0
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Barrier({})", self.size)
    }
}
