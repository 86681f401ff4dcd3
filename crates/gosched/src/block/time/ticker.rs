//! Moments at equal distances, as values in a channel.

use crate::block::chan::{self, Receiver};
use crate::sys::clock;
use std::fmt;
use std::time::{Duration, Instant};

/// Sends the time into its channel, again and again. Of ticks that nobody takes one is kept.
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

/// A channel that gets the time after each `period`, until it is dropped.
///
/// # Panics
/// The period is zero.
#[doc(alias = "Tick")]
#[track_caller]
pub fn tick(period: Duration) -> Receiver<Instant> {
    Ticker::new(period).receiver
}

impl Ticker {
    /// The first tick comes after `period`.
    ///
    /// # Panics
    /// The period is zero.
    #[track_caller]
    pub fn new(period: Duration) -> Ticker {
        let ticker = Ticker { receiver: chan::of_timer(clock::instant) };
        ticker.reset(period);
        ticker
    }

    /// Where the times come out. Its length and capacity are 0.
    pub fn chan(&self) -> &Receiver<Instant> {
        &self.receiver
    }

    /// No more ticks, and nothing that was sent can be received. True if it ticked.
    pub fn stop(&self) -> bool {
        self.receiver.timer().is_some_and(|timer| timer.stop(self.receiver.core()))
    }

    /// From now on after each `period`. True if it ticked before.
    ///
    /// # Panics
    /// The period is zero.
    #[track_caller]
    pub fn reset(&self, period: Duration) -> bool {
        assert!(!period.is_zero(), "a ticker needs a period above zero: use `yield_now` in a loop");
        let (when, period) = (clock::after(period), clock::nanos(period));
        self.receiver.timer().is_some_and(|timer| timer.reset(self.receiver.core(), when, period))
    }
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticker")
    }
}
