//! The sending end.

use super::core::{Core, Not};
use super::ends::{End, Ends, Sends};
use super::error::{SendError, SendTimeoutError, TrySendError};
use crate::block::may_wait;
use crate::sys::clock;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// Sends values into a channel. The last one gone closes it.
pub struct Sender<T> {
    ends: End<T, Sends>,
}

impl<T> Sender<T> {
    pub(super) fn new(ends: Arc<Ends<T>>) -> Sender<T> {
        Sender { ends: End::new(ends) }
    }

    pub(crate) fn core(&self) -> &Core<T> {
        &self.ends.core
    }

    /// Sends a value: waits while there is no room, or, on an unbuffered channel, until it is received.
    ///
    /// # Errors
    /// The channel is closed; or is closed while this waits.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        may_wait();
        self.ends.core.send(value).map_err(SendError)
    }

    /// Sends a value if that needs no wait.
    ///
    /// # Errors
    /// It does; or the channel is closed.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.ends.core.try_send(value).map_err(|(value, why)| match why {
            Not::Now => TrySendError::Full(value),
            Not::Ever => TrySendError::Closed(value),
        })
    }

    /// As [`Sender::send`], but waits for `duration` at most.
    ///
    /// # Errors
    /// The time is over, or the channel is closed.
    pub fn send_timeout(&self, value: T, duration: Duration) -> Result<(), SendTimeoutError<T>> {
        may_wait();
        let sent = self.core().send_until(value, clock::after(duration));
        sent.map_err(|(value, why)| match why {
            Not::Now => SendTimeoutError::Timeout(value),
            Not::Ever => SendTimeoutError::Closed(value),
        })
    }

    /// Closes the channel: those who wait to send get their values back, those who wait to receive are
    /// told. What is in it can still be received. True for the first only.
    pub fn close(&self) -> bool {
        self.ends.core.close()
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.ends.core.is_closed()
    }

    /// How many values are in it.
    pub fn len(&self) -> usize {
        self.ends.core.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values it holds at most.
    #[doc(alias = "capacity")]
    pub fn cap(&self) -> usize {
        self.ends.core.cap()
    }

    /// Whether both are ends of one channel.
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        self.ends.same(&other.ends)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { ends: self.ends.another() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.ends.is_last() {
            self.ends.core.close();
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
