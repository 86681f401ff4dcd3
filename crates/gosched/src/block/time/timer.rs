//! One moment, as a value in a channel.

use crate::block::chan::{self, Receiver};
use crate::sys::clock;
use std::fmt;
use std::time::{Duration, Instant};

/// Sends the time into its channel, once.
///
/// ```
/// use gosched::{chan, select, time::Timer};
/// use std::time::Duration;
///
/// let (_tx, rx) = chan::<u32>(0);
/// let timer = Timer::new(Duration::from_millis(5));
/// select! {
///     recv(rx) -> _ => unreachable!("nobody sends"),
///     recv(timer.chan()) -> time => assert!(time.is_ok()),
/// }
/// assert!(!timer.stop());
/// ```
#[doc(alias = "NewTimer")]
pub struct Timer {
    receiver: Receiver<Instant>,
}

/// A channel that gets the time after `duration`. Dropped before, nothing is left of it.
#[doc(alias = "After")]
pub fn after(duration: Duration) -> Receiver<Instant> {
    Timer::new(duration).receiver
}

impl Timer {
    /// In `duration` from now.
    pub fn new(duration: Duration) -> Timer {
        let timer = Timer { receiver: chan::of_timer(clock::instant) };
        timer.reset(duration);
        timer
    }

    /// Where the time comes out. Its length and capacity are 0.
    pub fn chan(&self) -> &Receiver<Instant> {
        &self.receiver
    }

    /// It sends nothing any more, and nothing that it sent can be received. True if there was something to
    /// stop: it had not sent, or that had not been received.
    pub fn stop(&self) -> bool {
        self.receiver.timer().is_some_and(|timer| timer.stop(self.receiver.core()))
    }

    /// In `duration` from now instead, or again. True as [`Timer::stop`].
    pub fn reset(&self, duration: Duration) -> bool {
        let when = clock::after(duration);
        self.receiver.timer().is_some_and(|timer| timer.reset(self.receiver.core(), when, 0))
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}
