//! The sending end of a channel. A failed send never drops its value: the error contains it.

use super::core::{Chan, ChanError};
use super::ends::{ChanRecord, End, Sends};
use super::error::{SendError, SendTimeoutError, TrySendError};
use crate::block::before_wait;
use crate::sys::clock;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// The sending end of a channel, created by [`chan()`](super::chan()).
///
/// When the last sender is dropped, the channel is closed.
pub struct Sender<T> {
    end: End<T, Sends>,
}

impl<T> Sender<T> {
    pub(super) fn new(ends: Arc<ChanRecord<T>>) -> Sender<T> {
        Sender { end: End::new(ends) }
    }

    pub(crate) fn core(&self) -> &Chan<T> {
        &self.end.core
    }

    /// Sends a value. Blocks while the buffer is full or, on an unbuffered channel, until a
    /// receiver takes the value.
    ///
    /// # Errors
    /// The channel is closed, or is closed while the call blocks. The error contains the value.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        before_wait();
        self.end.core.send(value).map_err(SendError)
    }

    /// Sends a value if that is possible without blocking.
    ///
    /// # Errors
    /// The send would block, or the channel is closed. The error contains the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.end.core.try_send(value).map_err(|(value, why)| match why {
            ChanError::WouldBlock => TrySendError::Full(value),
            ChanError::Closed => TrySendError::Closed(value),
        })
    }

    /// Sends a value like [`Sender::send`], but waits at most `duration`.
    ///
    /// # Errors
    /// The value could not be sent in time, or the channel is closed. The error contains the value.
    pub fn send_timeout(&self, value: T, duration: Duration) -> Result<(), SendTimeoutError<T>> {
        before_wait();
        let sent = self.core().send_until(value, clock::after(duration));
        sent.map_err(|(value, why)| match why {
            ChanError::WouldBlock => SendTimeoutError::Timeout(value),
            ChanError::Closed => SendTimeoutError::Closed(value),
        })
    }

    /// Closes the channel.
    ///
    /// Blocked senders and receivers return with an error; a sender gets its value back. The values
    /// in the buffer can still be received. Returns `false` if the channel was already closed.
    pub fn close(&self) -> bool {
        self.end.core.close()
    }

    /// Returns whether the channel is closed.
    pub fn is_closed(&self) -> bool {
        self.end.core.is_closed()
    }

    /// Returns the number of values in the buffer.
    pub fn len(&self) -> usize {
        self.end.core.len()
    }

    /// Returns whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the capacity of the buffer: 0 for an unbuffered channel.
    #[doc(alias = "capacity")]
    pub fn cap(&self) -> usize {
        self.end.core.cap()
    }

    /// Returns whether both senders belong to the same channel.
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        self.end.same(&other.end)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { end: self.end.another() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.end.release() {
            self.end.core.close();
        }
    }
}

// A panic cannot leave the channel in an inconsistent state: no user code runs under its lock.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} of {})", self.len(), self.cap())
    }
}
