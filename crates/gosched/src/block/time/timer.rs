//! One moment: as a value in a channel, or as a function that runs.

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
///     recv(rx) -> _ => unreachable!("nobody sends"),
///     recv(timer.chan()) -> time => assert!(time.is_ok()),
/// }
/// assert!(!timer.stop());
/// ```
///
/// Or, made by [`after_func`], runs a function.
#[doc(alias = "NewTimer")]
pub struct Timer(Kind);

enum Kind {
    Sends(Receiver<Instant>),
    Runs(Arc<FuncTimer>),
}

/// A channel that gets the time after `duration`. Dropped before, nothing is left of it.
#[doc(alias = "After")]
pub fn after(duration: Duration) -> Receiver<Instant> {
    let receiver = chan::of_timer(clock::instant);
    reset(&receiver, duration);
    receiver
}

/// Runs `f` after `duration`, in a goroutine of its own.
///
/// ```
/// use gosched::{chan, time};
/// use std::time::Duration;
///
/// let (tx, rx) = chan::<&str>(1);
/// let timer = time::after_func(Duration::from_millis(2), move || tx.send("now").unwrap());
/// assert_eq!(rx.recv(), Ok("now"));
/// timer.reset(Duration::from_millis(2)); // once more, in another goroutine
/// assert_eq!(rx.recv(), Ok("now"));
/// ```
///
/// Dropping the timer changes nothing: [`Timer::stop`] does. A run that is due while the last one goes on
/// waits for it. A panic in `f` ends that run only.
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
    /// In `duration` from now.
    pub fn new(duration: Duration) -> Timer {
        Timer(Kind::Sends(after(duration)))
    }

    /// Where the time comes out. Its length and capacity are 0. A timer that runs a function sends nothing.
    pub fn chan(&self) -> &Receiver<Instant> {
        static NEVER: OnceLock<Receiver<Instant>> = OnceLock::new();
        match &self.0 {
            Kind::Sends(receiver) => receiver,
            Kind::Runs(_) => NEVER.get_or_init(chan::never),
        }
    }

    /// It sends nothing any more, and nothing that it sent can be received. True if there was something to
    /// stop: it had not sent, or that had not been received.
    ///
    /// A function does not run, unless its goroutine was started already: then this is false, and does not
    /// wait for its end.
    pub fn stop(&self) -> bool {
        match &self.0 {
            Kind::Sends(receiver) => {
                receiver.timer().is_some_and(|timer| timer.stop(receiver.core()))
            }
            Kind::Runs(func) => func.stop(),
        }
    }

    /// In `duration` from now instead, or again. True as [`Timer::stop`].
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
