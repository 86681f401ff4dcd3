//! A timer that fires once: it sends the time into a channel, or runs a function. `Timer::stop`
//! never waits for the function to return.

use super::func::FuncTimer;
use crate::block::chan::{self, Receiver};
use crate::sys::clock;
use std::fmt;
use std::sync::{Arc, OnceLock};
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
///     recv(rx) -> _ => unreachable!("nothing is sent"),
///     recv(timer.chan()) -> time => assert!(time.is_ok()),
/// }
/// assert!(!timer.stop());
/// ```
///
/// A timer that was created by [`after_func`] runs a function instead.
#[doc(alias = "NewTimer")]
pub struct Timer(Kind);

enum Kind {
    Sends(Receiver<Instant>),
    Runs(Arc<FuncTimer>),
}

/// Returns a channel that receives the time once, after `duration`.
///
/// Dropping the receiver stops the timer.
#[doc(alias = "After")]
pub fn after(duration: Duration) -> Receiver<Instant> {
    let receiver = chan::of_timer(clock::instant);
    reset(&receiver, duration);
    receiver
}

/// Runs `f` in a new goroutine after `duration`.
///
/// ```
/// use gosched::{chan, time};
/// use std::time::Duration;
///
/// let (tx, rx) = chan::<&str>(1);
/// let timer = time::after_func(Duration::from_millis(2), move || tx.send("now").unwrap());
/// assert_eq!(rx.recv(), Ok("now"));
/// timer.reset(Duration::from_millis(2)); // runs once more, in another goroutine
/// assert_eq!(rx.recv(), Ok("now"));
/// ```
///
/// Dropping the timer does not stop it: call [`Timer::stop`]. If a run is due while the previous
/// run is in progress, the new run waits until the previous run ends. By default a panic in `f`
/// ends only that run: see [`PanicPolicy`](crate::runtime::PanicPolicy).
#[doc(alias = "AfterFunc")]
#[track_caller]
pub fn after_func<F: FnMut() + Send + 'static>(duration: Duration, f: F) -> Timer {
    let func = FuncTimer::new(Box::new(f));
    func.reset(clock::after(duration));
    Timer(Kind::Runs(func))
}

fn reset(receiver: &Receiver<Instant>, duration: Duration) -> bool {
    let when = clock::after(duration);
    receiver.timer().is_some_and(|timer| timer.reset(receiver.core(), when, 0))
}

impl Timer {
    /// Creates a timer that fires after `duration`.
    pub fn new(duration: Duration) -> Timer {
        Timer(Kind::Sends(after(duration)))
    }

    /// Returns the channel that receives the time at which the timer was due.
    ///
    /// The channel reports a length and a capacity of 0, although it buffers the value.
    ///
    /// The channel of a timer that runs a function never receives a value.
    pub fn chan(&self) -> &Receiver<Instant> {
        static NEVER: OnceLock<Receiver<Instant>> = OnceLock::new();
        match &self.0 {
            Kind::Sends(receiver) => receiver,
            Kind::Runs(_) => NEVER.get_or_init(chan::never),
        }
    }

    /// Stops the timer, and discards a value that was sent but not received.
    ///
    /// Returns `true` if the timer was running, or if its value was sent but not received. Returns
    /// `false` otherwise, for example after an earlier `stop`.
    ///
    /// The function of [`after_func`] does not run, unless its goroutine was already started. In
    /// that case `stop` returns `false`, and does not wait for the function to return.
    pub fn stop(&self) -> bool {
        match &self.0 {
            Kind::Sends(receiver) => {
                receiver.timer().is_some_and(|timer| timer.stop(receiver.core()))
            }
            Kind::Runs(func) => func.stop(),
        }
    }

    /// Stops the timer as [`Timer::stop`] does, and starts it again: it fires after `duration`.
    /// Returns what `stop` would return.
    pub fn reset(&self, duration: Duration) -> bool {
        match &self.0 {
            Kind::Sends(receiver) => reset(receiver, duration),
            Kind::Runs(func) => func.reset(clock::after(duration)),
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}
