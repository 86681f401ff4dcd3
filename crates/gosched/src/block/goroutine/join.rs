//! Waiting for a goroutine's end.

use super::packet::{JoinError, Outcome, PacketHandle};
use super::{GoId, Goroutine};
use crate::block::exit;
use crate::gmp::reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The right to a goroutine's result. Dropped, the goroutine goes on by itself.
pub struct JoinHandle<T> {
    packet: PacketHandle<T>,
    goroutine: Goroutine,
    /// Where the goroutine is one.
    thread: Option<Box<std::thread::JoinHandle<()>>>,
}

impl<T> JoinHandle<T> {
    pub(crate) fn new(
        packet: PacketHandle<T>,
        goroutine: Goroutine,
        thread: Option<Box<std::thread::JoinHandle<()>>>,
    ) -> JoinHandle<T> {
        JoinHandle { packet, goroutine, thread }
    }

    /// Waits for its end: the result, or how it ended instead. Its thread-locals have been destroyed
    /// by then. Works in goroutines and on ordinary threads.
    ///
    /// # Errors
    /// It panicked, or called [`goexit`](crate::goexit).
    pub fn join(self) -> Result<T, JoinError> {
        self.join_for(WaitReason::Join)
    }

    /// As [`JoinHandle::join`], but waits for `duration` at most.
    ///
    /// # Errors
    /// It has not ended by then: the handle again.
    pub fn join_timeout(self, duration: Duration) -> Result<Result<T, JoinError>, JoinHandle<T>> {
        exit::resume_if_exiting();
        if self.packet.wait_until(WaitReason::Join, clock::after(duration)) {
            Ok(self.join())
        } else {
            Err(self)
        }
    }

    pub(crate) fn join_for(self, reason: WaitReason) -> Outcome<T> {
        exit::resume_if_exiting();
        self.packet.wait(reason);
        if let Some(thread) = self.thread {
            // Its thread-locals' destructors may still run.
            let _ = thread.join();
        }
        match self.packet.take() {
            Some(outcome) => outcome,
            None => unreachable!("it is done, and its only handle was never read"),
        }
    }

    /// Whether it has ended: [`JoinHandle::join`] does not wait then.
    pub fn is_finished(&self) -> bool {
        self.packet.is_done()
    }

    /// Its number.
    pub fn id(&self) -> GoId {
        self.goroutine.id()
    }

    /// The goroutine itself: its name, and a way to [`unpark`](Goroutine::unpark) it.
    pub fn goroutine(&self) -> &Goroutine {
        &self.goroutine
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("JoinHandle");
        debug.field("id", &self.id()).field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> IntoFuture for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    type IntoFuture = JoinFuture<T>;

    fn into_future(self) -> JoinFuture<T> {
        JoinFuture { packet: Some(self.packet) }
    }
}

/// A [`JoinHandle`] as a future.
#[derive(Debug)]
pub struct JoinFuture<T> {
    packet: Option<PacketHandle<T>>,
}

impl<T> Unpin for JoinFuture<T> {}

impl<T> Future for JoinFuture<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = self.packet.as_ref().map(|packet| packet.poll(context));
        match done {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(())) => match self.packet.take().and_then(PacketHandle::take) {
                Some(outcome) => Poll::Ready(outcome),
                None => unreachable!("it is done, and its only handle was never read"),
            },
            None => panic!("`JoinFuture` polled after it was ready"),
        }
    }
}

/// A [`JoinHandle`] of a goroutine that borrows: see [`scope`](crate::scope).
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    pub(crate) fn new(handle: JoinHandle<T>) -> Self {
        ScopedJoinHandle { handle, scope: PhantomData }
    }

    /// As [`JoinHandle::join`].
    ///
    /// # Errors
    /// As there.
    pub fn join(self) -> Result<T, JoinError> {
        self.handle.join()
    }

    /// As [`JoinHandle::join_timeout`].
    ///
    /// # Errors
    /// As there.
    pub fn join_timeout(self, duration: Duration) -> Result<Result<T, JoinError>, Self> {
        self.handle.join_timeout(duration).map_err(ScopedJoinHandle::new)
    }

    /// As [`JoinHandle::is_finished`].
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// As [`JoinHandle::id`].
    pub fn id(&self) -> GoId {
        self.handle.id()
    }

    /// As [`JoinHandle::goroutine`].
    pub fn goroutine(&self) -> &Goroutine {
        self.handle.goroutine()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
