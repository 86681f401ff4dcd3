//! The receiving end of a channel. This module never accesses the ring or the wait queues: `core`
//! and `wait` do.

use super::Closer;
use super::core::{Chan, ChanError};
use super::ends::{ChanRecord, End, Receives};
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::iter::{IntoIter, Iter, TryIter};
use super::recv_future::RecvFuture;
use super::timer::ChanTimer;
use crate::block::before_wait;
use crate::block::select::block_forever;
use crate::probe::wait_reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// The receiving end of a channel, created by [`chan()`](super::chan()).
///
/// When the last receiver is dropped, the channel is closed and the values in its buffer are
/// dropped.
pub struct Receiver<T> {
    end: End<T, Receives>,
}

/// Creates a receiver of a channel that never carries a value and is never closed.
///
/// [`Receiver::recv`] blocks forever. In a `select!` the receiver disables its arm, like Go's nil
/// channel.
#[doc(alias = "nil")]
pub fn never<T>() -> Receiver<T> {
    super::nil()
}

impl<T> Receiver<T> {
    pub(super) fn new(ends: Arc<ChanRecord<T>>) -> Receiver<T> {
        Receiver { end: End::new(ends) }
    }

    pub(crate) fn closer(&self) -> Closer<T> {
        self.end.closer()
    }

    pub(crate) fn core(&self) -> &Chan<T> {
        &self.end.core
    }

    /// Returns whether this channel never carries a value and is never closed.
    pub(crate) fn is_nil(&self) -> bool {
        self.end.seal.as_ref().is_some_and(|seal| seal.is_nil)
    }

    /// Returns the timer that sends into this channel, if there is one.
    pub(crate) fn timer(&self) -> Option<&ChanTimer<T>> {
        self.end.timer.as_ref()
    }

    /// Receives a value. Blocks until one is available.
    ///
    /// # Errors
    /// The channel is closed and empty.
    pub fn recv(&self) -> Result<T, RecvError> {
        before_wait();
        if self.is_nil() {
            block_forever(WaitReason::ChanReceiveNil);
        }
        self.end.core.receive().ok_or(RecvError)
    }

    /// Receives a value if one is available without blocking.
    ///
    /// # Errors
    /// No value is available, or the channel is closed and empty.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.end.core.try_receive().map_err(|why| match why {
            ChanError::WouldBlock => TryRecvError::Empty,
            ChanError::Closed => TryRecvError::Closed,
        })
    }

    /// Receives a value like [`Receiver::recv`], but waits at most `duration`.
    ///
    /// # Errors
    /// No value arrived in time, or the channel is closed and empty.
    pub fn recv_timeout(&self, duration: Duration) -> Result<T, RecvTimeoutError> {
        before_wait();
        self.core().receive_until(clock::after(duration)).map_err(|why| match why {
            ChanError::WouldBlock => RecvTimeoutError::Timeout,
            ChanError::Closed => RecvTimeoutError::Closed,
        })
    }

    /// Returns a future that receives a value, under any executor. Its output is an error if the
    /// channel is closed and empty.
    ///
    /// If the future is dropped before it completes, no value is lost. When a value becomes
    /// available, a goroutine of the runtime calls the waker of the future. On an unbuffered
    /// channel, a pending future does not count as a waiting receiver:
    /// [`Sender::send`](super::Sender::send) delivers a value to it, but `try_send` fails, and a
    /// `select!` with a `default` chooses the default.
    ///
    /// ```
    /// let (tx, rx) = gosched::chan::<u32>(0);
    /// gosched::go(move || tx.send(7));
    /// // Usually under the executor of the async program.
    /// assert_eq!(gosched::block_on(async { rx.recv_async().await }), Ok(7));
    /// ```
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        RecvFuture::new(self)
    }

    /// Returns an iterator over the received values. The iterator blocks while no value is
    /// available, and ends when the channel is closed and empty.
    #[doc(alias = "range")]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(self)
    }

    /// Returns an iterator over the values that can be received without blocking.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter::new(self)
    }

    /// Closes the channel, like [`Sender::close`](super::Sender::close).
    ///
    /// The channels of [`never()`], [`Context::done`](crate::context::Context::done) and
    /// [`signal`](crate::signal) cannot be closed in this way: the call has no effect and returns
    /// `false`.
    pub fn close(&self) -> bool {
        self.end.seal.is_none() && self.end.core.close()
    }

    /// Returns whether the channel is closed. Its buffer may still contain values.
    pub fn is_closed(&self) -> bool {
        self.end.core.is_closed()
    }

    /// Returns the number of values in the buffer. Always 0 for the channel of a timer.
    pub fn len(&self) -> usize {
        if self.timer().is_some() { 0 } else { self.end.core.len() }
    }

    /// Returns whether the buffer is empty. Always `true` for the channel of a timer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the capacity of the buffer: 0 for an unbuffered channel and for the channel of a
    /// timer.
    #[doc(alias = "capacity")]
    pub fn cap(&self) -> usize {
        if self.timer().is_some() { 0 } else { self.end.core.cap() }
    }

    /// Returns whether both receivers belong to the same channel.
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        self.end.same(&other.end)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        Receiver { end: self.end.another() }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.end.release() {
            self.end.core.close();
            if let Some(timer) = self.timer() {
                timer.stop(self.core());
            }
            drop(self.end.core.drain());
        }
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter::new(self)
    }
}

// A panic cannot leave the channel in an inconsistent state: no user code runs under its lock.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} of {})", self.len(), self.cap())
    }
}
