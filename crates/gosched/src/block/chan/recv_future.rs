//! Receiving in async code.

use super::bell::{Bell, Bells};
use super::core::{Channel, Core, Not};
use super::error::RecvError;
use super::receiver::Receiver;
use crate::sched;
use std::fmt;
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A receive, as a future: see [`Receiver::recv_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct RecvFuture<'a, T> {
    receiver: &'a Receiver<T>,
    /// What it has left in the channel; since its last look.
    bell: Option<Arc<Bell>>,
}

impl<'a, T> RecvFuture<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> RecvFuture<'a, T> {
        RecvFuture { receiver, bell: None }
    }
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let core = self.receiver.core();
        let mut received = core.try_receive();
        if let Err(Not::Now) = received {
            let waker = context.waker();
            let bell = self.bell.get_or_insert_with(|| Bell::new(waker));
            bell.set_waker(waker);
            received = core.receive_or_hang(bell);
        }
        let received = match received {
            Err(Not::Now) => return Poll::Pending,
            Err(Not::Ever) => Err(RecvError),
            Ok(value) => Ok(value),
        };
        if let Some(bell) = self.bell.take() {
            core.take_down(&bell);
        }
        Poll::Ready(received)
    }
}

impl<T> Drop for RecvFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(bell) = self.bell.take()
            && !self.receiver.core().take_down(&bell)
        {
            // It rang, and this one did not look: somebody else should.
            self.receiver.core().pass_on();
        }
    }
}

impl<T> fmt::Debug for RecvFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvFuture")
    }
}

impl<T> Core<T> {
    /// Receives if that can be done at once; else the bell hangs when this returns.
    fn receive_or_hang(&self, bell: &Arc<Bell>) -> Result<T, Not> {
        let mut slot = MaybeUninit::<T>::uninit();
        let mut messenger = None;
        loop {
            let inside = sched::enter_runtime();
            self.hold();
            // SAFETY: held — above; slot — ours.
            let received = unsafe { self.receive_now(slot.as_mut_ptr()) };
            let mut hangs = true;
            if matches!(received, Err(Not::Now)) {
                // SAFETY: held — above.
                let state = unsafe { self.state() };
                hangs = Bells::hangs(bell);
                if !hangs && let Some(messenger) = messenger.take() {
                    // SAFETY: alive — its future takes it down before it goes.
                    unsafe { state.bells.hang(bell, messenger) };
                    self.tell_bells(state);
                    hangs = true;
                }
            }
            self.leave(inside, *received.as_ref().unwrap_or(&None));
            if hangs {
                if received.is_err() {
                    // A timer of this channel counts from here on.
                    sched::recheck_virtual_time();
                }
                // SAFETY: received: it was written.
                return received.map(|_| unsafe { slot.assume_init() });
            }
            // Takes memory: not under the lock.
            messenger = Some(bell.messenger());
        }
    }

    /// The bell does not hang any more. False: it did not.
    fn take_down(&self, bell: &Bell) -> bool {
        let inside = sched::enter_runtime();
        self.hold();
        // SAFETY: held — above.
        let state = unsafe { self.state() };
        let messenger = state.bells.take_down(bell);
        self.tell_bells(state);
        self.leave(inside, None);
        messenger.is_some()
    }

    /// One who was told to look has not: if there is something to see, somebody else is told.
    fn pass_on(&self) {
        let inside = sched::enter_runtime();
        self.hold();
        // SAFETY: held — above.
        let state = unsafe { self.state() };
        let rest = self.len() > 0 || !state.senders.is_empty() || self.is_closed();
        let g = if rest { self.ring(state) } else { None };
        self.leave(inside, g);
    }
}
