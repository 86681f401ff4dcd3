//! A channel as `select!` and the queues see it: a lock and two queues, whatever the values are.

use super::core::Chan;
use crate::block::waiter::{ToReady, Waiter};
use crate::gmp::reason::WaitReason;
use crate::probe;

/// A channel of whatever values: its lock, and its queues.
pub trait AnyChan {
    /// Takes the lock. To be followed by [`AnyChan::unlock`].
    fn lock(&self);

    /// # Safety
    /// - **held**: by the caller, or by whoever it goes on for.
    unsafe fn unlock(&self);

    /// As [`AnyChan::unlock`], by code that nobody keeps the channel for.
    ///
    /// # Safety
    /// - **held**: as there.
    unsafe fn unlock_and_forget(&self);

    /// Puts a waiter among those who wait to send, or to receive; who is to be made ready, since there is
    /// something to receive now.
    ///
    /// # Safety
    /// - **held**: by the caller.
    /// - **frame**: as for [`WaitQueue::push`](crate::block::waiter::WaitQueue::push).
    unsafe fn enqueue(&self, waiter: &Waiter, to: Direction) -> ToReady;

    /// Takes a waiter out again, if nobody did.
    ///
    /// # Safety
    /// - **held**: by the caller.
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

/// Which of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Of those who send.
    Send,
    /// Of those who receive.
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
