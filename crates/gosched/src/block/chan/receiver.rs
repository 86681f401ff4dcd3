//! The receiving end.

use super::Closer;
use super::core::{Chan, ChanError};
use super::ends::{ChanRecord, End, Receives};
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::iter::{IntoIter, Iter, TryIter};
use super::recv_future::RecvFuture;
use super::timer::ChanTimer;
use crate::block::before_wait;
use crate::block::select::block_forever;
use crate::gmp::reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// Receives values from a channel. The last one gone closes it, and drops what is in it.
pub struct Receiver<T> {
    end: End<T, Receives>,
}

/// A receiver that never gets anything, and is never closed: an arm of a `select!` that is off.
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

    /// Nothing ever comes, not even its end.
    pub(crate) fn is_nil(&self) -> bool {
        self.end.seal.as_ref().is_some_and(|seal| seal.is_nil)
    }

    /// The timer that sends.
    pub(crate) fn timer(&self) -> Option<&ChanTimer<T>> {
        self.end.timer.as_ref()
    }

    /// Receives a value; waits for one.
    ///
    /// # Errors
    /// The channel is closed, and empty.
    pub fn recv(&self) -> Result<T, RecvError> {
        before_wait();
        if self.is_nil() {
            block_forever(WaitReason::ChanReceiveNil);
        }
        self.end.core.receive().ok_or(RecvError)
    }

    /// Receives a value if that needs no wait.
    ///
    /// # Errors
    /// It does; or the channel is closed, and empty.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.end.core.try_receive().map_err(|why| match why {
            ChanError::WouldBlock => TryRecvError::Empty,
            ChanError::Closed => TryRecvError::Closed,
        })
    }

    /// As [`Receiver::recv`], but waits for `duration` at most.
    ///
    /// # Errors
    /// The time is over; or the channel is closed, and empty.
    pub fn recv_timeout(&self, duration: Duration) -> Result<T, RecvTimeoutError> {
        before_wait();
        self.core().receive_until(clock::after(duration)).map_err(|why| match why {
            ChanError::WouldBlock => RecvTimeoutError::Timeout,
            ChanError::Closed => RecvTimeoutError::Closed,
        })
    }

    /// As [`Receiver::recv`], for async code, under any executor.
    ///
    /// Dropped before it is done, it has taken nothing. Its waker is called by a goroutine, soon after there
    /// is something to receive. A sender of an unbuffered channel does not see it as
    /// one who waits: [`Sender::send`](super::Sender::send) meets it, `try_send` does not.
    ///
    /// ```
    /// let (tx, rx) = gosched::chan::<u32>(0);
    /// gosched::go(move || tx.send(7));
    /// // In the async program's own executor, as a rule.
    /// assert_eq!(gosched::block_on(async { rx.recv_async().await }), Ok(7));
    /// ```
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        RecvFuture::new(self)
    }

    /// All values until the channel is closed and empty; waits for each.
    #[doc(alias = "range")]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(self)
    }

    /// The values that can be received without waiting.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter::new(self)
    }

    /// As [`Sender::close`](super::Sender::close). Not for what is the runtime's to close:
    /// [`never()`] and [`Context::done`](crate::context::Context::done).
    pub fn close(&self) -> bool {
        self.end.seal.is_none() && self.end.core.close()
    }

    /// Whether it is closed: something may still be in it.
    pub fn is_closed(&self) -> bool {
        self.end.core.is_closed()
    }

    /// How many values are in it.
    pub fn len(&self) -> usize {
        if self.timer().is_some() { 0 } else { self.end.core.len() }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values it holds at most.
    #[doc(alias = "capacity")]
    pub fn cap(&self) -> usize {
        if self.timer().is_some() { 0 } else { self.end.core.cap() }
    }

    /// Whether both are ends of one channel.
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

// Nothing in it is left half done by a panic: no code of the program runs under its lock.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} of {})", self.len(), self.cap())
    }
}
