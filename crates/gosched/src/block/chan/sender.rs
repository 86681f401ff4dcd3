//! The sending end.

use super::Shared;
use super::core::{Core, Not};
use super::error::{SendError, TrySendError};
use crate::block::may_wait;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sends values into a channel. The last one gone closes it.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Sender<T> {
        Sender { shared }
    }

    pub(crate) fn core(&self) -> &Core<T> {
        &self.shared.core
    }

    /// Sends a value: waits while there is no room, or, on an unbuffered channel, until it is received.
    ///
    /// # Errors
    /// The channel is closed; or is closed while this waits.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        may_wait();
        self.shared.core.send(value).map_err(SendError)
    }

    /// Sends a value if that needs no wait.
    ///
    /// # Errors
    /// It does; or the channel is closed.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.shared.core.try_send(value).map_err(|(value, why)| match why {
            Not::Now => TrySendError::Full(value),
            Not::Ever => TrySendError::Closed(value),
        })
    }

    /// Closes the channel: those who wait to send get their values back, those who wait to receive are
    /// told. What is in it can still be received. True for the first only.
    pub fn close(&self) -> bool {
        self.shared.core.close()
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.core.is_closed()
    }

    /// How many values are in it.
    pub fn len(&self) -> usize {
        self.shared.core.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values it holds at most.
    #[doc(alias = "capacity")]
    pub fn cap(&self) -> usize {
        self.shared.core.cap()
    }

    /// Whether both are ends of one channel.
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // PAIR chan-senders: what the others did before they went is done.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.core.close();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} of {})", self.len(), self.cap())
    }
}
