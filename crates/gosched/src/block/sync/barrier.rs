//! A point that a number of goroutines or threads pass together, again and again.

use super::parking::{Guarded, WaitOptions};
use crate::block::before_wait;
use crate::block::waiter::WaitQueue;
use crate::gmp::reason::WaitReason;
use std::fmt;

/// Lets nobody pass until all are there.
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
    /// For so many; for 0 or 1 it is always open.
    pub const fn new(size: usize) -> Barrier {
        Barrier { state: Guarded::new(State { arrived: 0, queue: WaitQueue::new() }), size }
    }

    /// Waits until as many have come as it is for. One of them, the last, is told so.
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

/// What [`Barrier::wait`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for one of those who passed together.
    pub fn is_leader(self) -> bool {
        self.0
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Barrier({})", self.size)
    }
}
