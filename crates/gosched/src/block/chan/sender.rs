//! The sending end.

use super::core::{Chan, ChanError};
use super::ends::{ChanRecord, End, Sends};
use super::error::{SendError, SendTimeoutError, TrySendError};
use crate::block::before_wait;
use crate::sys::clock;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// Sends values into a channel. The last one gone closes it.
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

    /// Sends a value: waits while there is no room, or, on an unbuffered channel, until it is received.
    ///
    /// # Errors
    /// The channel is closed; or is closed while this waits.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        before_wait();
        self.end.core.send(value).map_err(SendError)
    }

    /// Sends a value if that needs no wait.
    ///
    /// # Errors
    /// It does; or the channel is closed.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.end.core.try_send(value).map_err(|(value, why)| match why {
            ChanError::WouldBlock => TrySendError::Full(value),
            ChanError::Closed => TrySendError::Closed(value),
        })
    }

    /// As [`Sender::send`], but waits for `duration` at most.
    ///
    /// # Errors
    /// The time is over, or the channel is closed.
    pub fn send_timeout(&self, value: T, duration: Duration) -> Result<(), SendTimeoutError<T>> {
        before_wait();
        let sent = self.core().send_until(value, clock::after(duration));
        sent.map_err(|(value, why)| match why {
            ChanError::WouldBlock => SendTimeoutError::Timeout(value),
            ChanError::Closed => SendTimeoutError::Closed(value),
        })
    }

    /// Closes the channel: those who wait to send get their values back, those who wait to receive are
    /// told. What is in it can still be received. True for the first only.
    pub fn close(&self) -> bool {
        self.end.core.close()
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.end.core.is_closed()
    }

    /// How many values are in it.
    pub fn len(&self) -> usize {
        self.end.core.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values it holds at most.
    #[doc(alias = "capacity")]
    pub fn cap(&self) -> usize {
        self.end.core.cap()
    }

    /// Whether both are ends of one channel.
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

// Nothing in it is left half done by a panic: no code of the program runs under its lock.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} of {})", self.len(), self.cap())
    }
}
