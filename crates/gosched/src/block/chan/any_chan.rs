//! A channel as `select!` and the wait queues see it: a lock and two queues, for any type of value.
//! An `AnyChan` never moves a value, and never makes a G ready: `enqueue` returns the G.

use super::core::Chan;
use crate::block::waiter::{ToReady, Waiter};
use crate::probe;
use crate::probe::wait_reason::WaitReason;

/// A channel of any value type: its lock and its queues.
pub trait AnyChan {
    /// Acquires the lock. [`AnyChan::unlock`] releases it.
    fn lock(&self);

    /// Releases the lock.
    ///
    /// # Safety
    /// - **held**: the caller, or the goroutine on whose behalf it runs, holds the lock.
    unsafe fn unlock(&self);

    /// Releases the lock, and does not access the channel afterwards: it may be freed as soon as
    /// the lock is free.
    ///
    /// # Safety
    /// - **held**: as for [`AnyChan::unlock`].
    unsafe fn unlock_and_forget(&self);

    /// Appends a waiter to the queue of senders or of receivers. Returns the G that the caller must
    /// make ready: a new sender notifies a future that waits to receive.
    ///
    /// # Safety
    /// - **held**: the caller holds the lock.
    /// - **frame**: as for [`WaitQueue::push`](crate::block::waiter::WaitQueue::push).
    unsafe fn enqueue(&self, waiter: &Waiter, to: Direction) -> ToReady;

    /// Removes a waiter, if it is still in the queue.
    ///
    /// # Safety
    /// - **held**: the caller holds the lock.
    unsafe fn dequeue(&self, waiter: &Waiter, from: Direction);
}

impl<T> AnyChan for Chan<T> {
    #[inline]
    fn lock(&self) {
        self.lock.acquire();
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: held — promised by the caller.
        unsafe { self.lock.release() };
    }

    #[inline]
    unsafe fn unlock_and_forget(&self) {
        // SAFETY: held — promised by the caller.
        unsafe { self.lock.release_before_free() };
    }

    #[inline]
    unsafe fn enqueue(&self, waiter: &Waiter, to: Direction) -> ToReady {
        // SAFETY: held — promised by the caller.
        let state = unsafe { self.state() };
        // SAFETY: frame — promised by the caller.
        unsafe { state.queue(to).push(waiter) };
        if probe::ENABLED {
            waiter.set_holders(self.end_counts.of_the_other_end(to));
        }
        self.publish_waiters(state);
        ToReady(if to == Direction::Send { self.notify_async(state) } else { None })
    }

    unsafe fn dequeue(&self, waiter: &Waiter, from: Direction) {
        // SAFETY: held — promised by the caller.
        let state = unsafe { self.state() };
        state.queue(from).remove(waiter);
        self.publish_waiters(state);
    }
}

/// The direction of a transfer, and so one of a channel's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The queue of senders.
    Send,
    /// The queue of receivers.
    Receive,
}

impl Direction {
    pub(crate) fn reason(self) -> WaitReason {
        match self {
            Direction::Send => WaitReason::ChanSend,
            Direction::Receive => WaitReason::ChanReceive,
        }
    }
}
