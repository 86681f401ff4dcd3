//! Receiving in async code: the future that [`Receiver::recv_async`] returns. The future never
//! holds a value between two polls, so dropping it loses none.

use super::any_chan::AnyChan;
use super::async_waiter::{AsyncWaiter, AsyncWaiters};
use super::core::{Chan, ChanError};
use super::error::RecvError;
use super::receiver::Receiver;
use crate::sched;
use std::fmt;
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The future returned by [`Receiver::recv_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct RecvFuture<'a, T> {
    receiver: &'a Receiver<T>,
    /// The entry through which the channel notifies this future. `None` until a poll has to wait.
    waiter: Option<Arc<AsyncWaiter>>,
}

impl<'a, T> RecvFuture<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> RecvFuture<'a, T> {
        RecvFuture { receiver, waiter: None }
    }
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let core = self.receiver.core();
        let mut received = core.try_receive();
        if let Err(ChanError::WouldBlock) = received {
            let waker = context.waker();
            let waiter = self.waiter.get_or_insert_with(|| AsyncWaiter::new(waker));
            waiter.set_waker(waker);
            received = core.receive_or_enqueue(waiter);
        }
        let received = match received {
            Err(ChanError::WouldBlock) => return Poll::Pending,
            Err(ChanError::Closed) => Err(RecvError),
            Ok(value) => Ok(value),
        };
        if let Some(waiter) = self.waiter.take() {
            core.remove_async_waiter(&waiter);
        }
        Poll::Ready(received)
    }
}

impl<T> Drop for RecvFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take()
            && !self.receiver.core().remove_async_waiter(&waiter)
        {
            // The channel notified this future, which was not polled since: notify the next one.
            self.receiver.core().notify_next();
        }
    }
}

impl<T> fmt::Debug for RecvFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvFuture")
    }
}

impl<T> Chan<T> {
    /// Receives a value if that needs no wait. Otherwise `waiter` is queued when this function
    /// returns.
    fn receive_or_enqueue(&self, waiter: &Arc<AsyncWaiter>) -> Result<T, ChanError> {
        let mut slot = MaybeUninit::<T>::uninit();
        let mut messenger = None;
        loop {
            let inside = sched::enter_runtime();
            self.lock();
            // SAFETY: held — locked above; slot — a local variable.
            let received = unsafe { self.receive_now(slot.as_mut_ptr()) };
            let mut is_settled = true;
            if matches!(received, Err(ChanError::WouldBlock)) {
                // SAFETY: held — locked above.
                let state = unsafe { self.state() };
                is_settled = AsyncWaiters::is_queued(waiter);
                if !is_settled && let Some(messenger) = messenger.take() {
                    // SAFETY: alive — the future removes the waiter before it drops it.
                    unsafe { state.async_waiters.push(waiter, messenger) };
                    self.publish_async_waiters(state);
                    is_settled = true;
                }
            }
            self.unlock_and_ready(inside, *received.as_ref().unwrap_or(&None));
            if is_settled {
                if received.is_err() {
                    // If a timer sends into this channel, virtual time may advance to it from here
                    // on.
                    sched::recheck_virtual_time();
                }
                // SAFETY: the value was received, so the slot was written.
                return received.map(|_| unsafe { slot.assume_init() });
            }
            // Allocates, so this is not done under the lock.
            messenger = Some(waiter.messenger());
        }
    }

    /// Removes the waiter. Returns false if it was not queued.
    fn remove_async_waiter(&self, waiter: &AsyncWaiter) -> bool {
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — locked above.
        let state = unsafe { self.state() };
        let messenger = state.async_waiters.remove(waiter);
        self.publish_async_waiters(state);
        self.unlock_and_ready(inside, None);
        messenger.is_some()
    }

    /// Passes a notification on: if a receive would not wait, notifies the next future.
    fn notify_next(&self) {
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — locked above.
        let state = unsafe { self.state() };
        let rest = self.len() > 0 || !state.senders.is_empty() || self.is_closed();
        let g = if rest { self.notify_async(state) } else { None };
        self.unlock_and_ready(inside, g);
    }
}
