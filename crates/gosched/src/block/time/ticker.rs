//! A ticker: sends the time into a channel at regular intervals. A ticker never makes up for missed
//! ticks: they are dropped.

use crate::block::chan::{self, Receiver};
use crate::sys::clock;
use std::fmt;
use std::time::{Duration, Instant};

/// Sends the time into its channel at regular intervals.
///
/// At most one tick is buffered: while it is not received, further ticks are dropped. The ticker
/// stops when it and all clones of its receiver are dropped.
///
/// ```
/// use gosched::time::Ticker;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let ticker = Ticker::new(Duration::from_millis(2));
/// let times: Vec<_> = ticker.chan().iter().take(3).collect();
/// assert!(times[2] >= start + Duration::from_millis(6)); // the third tick is never early
/// ticker.stop();
/// assert!(ticker.chan().try_recv().is_err());
/// ```
#[doc(alias = "NewTicker")]
pub struct Ticker {
    receiver: Receiver<Instant>,
}

/// Returns a channel that receives the time after each `period`, until the receiver is dropped.
///
/// # Panics
/// `period` is zero.
#[doc(alias = "Tick")]
#[track_caller]
pub fn tick(period: Duration) -> Receiver<Instant> {
    Ticker::new(period).receiver
}

impl Ticker {
    /// Creates a ticker. The first tick comes after `period`.
    ///
    /// # Panics
    /// `period` is zero.
    #[track_caller]
    pub fn new(period: Duration) -> Ticker {
        let ticker = Ticker { receiver: chan::of_timer(clock::instant) };
        ticker.reset(period);
        ticker
    }

    /// Returns the channel that receives the ticks. Each value is the time at which the tick was
    /// due.
    ///
    /// The channel reports a length and a capacity of 0, although it buffers one tick.
    pub fn chan(&self) -> &Receiver<Instant> {
        &self.receiver
    }

    /// Stops the ticker, and discards a tick that was not received. Returns whether the ticker was
    /// running.
    pub fn stop(&self) -> bool {
        self.receiver.timer().is_some_and(|timer| timer.stop(self.receiver.core()))
    }

    /// Restarts the ticker with the given period, and discards a tick that was not received.
    /// Returns whether the ticker was running.
    ///
    /// # Panics
    /// `period` is zero.
    #[track_caller]
    pub fn reset(&self, period: Duration) -> bool {
        assert!(
            !period.is_zero(),
            "the period of a ticker must not be zero: use a longer period, or call `yield_now` in a loop"
        );
        let (when, period) = (clock::after(period), clock::nanos(period));
        self.receiver.timer().is_some_and(|timer| timer.reset(self.receiver.core(), when, period))
    }
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticker")
    }
}
