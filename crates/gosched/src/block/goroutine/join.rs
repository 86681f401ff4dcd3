//! Waiting for the end of a goroutine. A handle never ends its goroutine: dropping the handle
//! detaches the goroutine.

use super::packet::{JoinError, Outcome, PacketHandle};
use super::{GoId, Goroutine};
use crate::block::exit;
use crate::probe::wait_reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A handle to wait for the end of a goroutine and get its result.
///
/// If the handle is dropped, the goroutine is detached: it continues, and its result is dropped.
pub struct JoinHandle<T> {
    packet: PacketHandle<T>,
    goroutine: Goroutine,
    /// The thread of the goroutine, if goroutines are OS threads.
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

    /// Waits for the goroutine to end, and returns its result.
    ///
    /// The thread-locals of the goroutine have been destroyed when this returns. Works in
    /// goroutines and on ordinary threads.
    ///
    /// # Errors
    /// The goroutine panicked, or called [`goexit`](crate::goexit).
    pub fn join(self) -> Result<T, JoinError> {
        self.join_for(WaitReason::Join)
    }

    /// Waits for the goroutine like [`JoinHandle::join`], but at most `duration`. The inner result
    /// is that of `join`.
    ///
    /// # Errors
    /// The goroutine did not end in time. The error is the handle.
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
            // The destructors of the thread's thread-locals may still be running.
            let _ = thread.join();
        }
        match self.packet.take() {
            Some(outcome) => outcome,
            None => unreachable!("the goroutine has ended, and its result was not taken before"),
        }
    }

    /// Returns whether the goroutine has ended, so that [`JoinHandle::join`] does not wait.
    pub fn is_finished(&self) -> bool {
        self.packet.is_done()
    }

    /// Returns the id of the goroutine.
    pub fn id(&self) -> GoId {
        self.goroutine.id()
    }

    /// Returns a handle to the goroutine, with its name, its labels and
    /// [`unpark`](Goroutine::unpark).
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

/// The future of a [`JoinHandle`]: awaiting the handle waits for the goroutine to end.
///
/// If the future is dropped, the goroutine is detached.
///
/// # Panics
/// The future is polled after it has returned the result.
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
                None => {
                    unreachable!("the goroutine has ended, and its result was not taken before")
                }
            },
            None => panic!("`JoinFuture` polled after completion"),
        }
    }
}

/// A handle to wait for a goroutine that [`Scope::go`](crate::Scope::go) started.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    pub(crate) fn new(handle: JoinHandle<T>) -> Self {
        ScopedJoinHandle { handle, scope: PhantomData }
    }

    /// Waits for the goroutine to end, and returns its result: see [`JoinHandle::join`].
    ///
    /// # Errors
    /// The goroutine panicked, or called [`goexit`](crate::goexit).
    pub fn join(self) -> Result<T, JoinError> {
        self.handle.join()
    }

    /// Waits for the goroutine like [`ScopedJoinHandle::join`], but at most `duration`.
    ///
    /// # Errors
    /// The goroutine did not end in time. The error is the handle.
    pub fn join_timeout(self, duration: Duration) -> Result<Result<T, JoinError>, Self> {
        self.handle.join_timeout(duration).map_err(ScopedJoinHandle::new)
    }

    /// Returns whether the goroutine has ended: see [`JoinHandle::is_finished`].
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Returns the id of the goroutine.
    pub fn id(&self) -> GoId {
        self.handle.id()
    }

    /// Returns the goroutine: see [`JoinHandle::goroutine`].
    pub fn goroutine(&self) -> &Goroutine {
        self.handle.goroutine()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
