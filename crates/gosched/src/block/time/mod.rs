//! Time: goroutines that sleep, and channels that tell when it is over.

mod elapsed;
mod func;
mod ticker;
mod timer;

pub use elapsed::{Elapsed, timeout};
pub use ticker::{Ticker, tick};
pub use timer::{Timer, after, after_func};

use super::before_wait;
use super::limit::WaitTimeout;
use super::waiter::Wakeup;
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::sched;
use crate::sys::clock;
use std::time::{Duration, Instant};

/// Does nothing for `duration`. Other goroutines run.
///
/// ```
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// gosched::run(|| gosched::time::sleep(Duration::from_millis(5)));
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// ```
#[doc(alias = "Sleep")]
pub fn sleep(duration: Duration) {
    before_wait();
    if !duration.is_zero() {
        sleep_until_nanos(clock::after(duration));
    }
}

/// Does nothing until `instant`.
pub fn sleep_until(instant: Instant) {
    sleep(instant.saturating_duration_since(now()));
}

/// The time that timers go by: [`Instant::now`], but where time is virtual.
#[doc(alias = "Now")]
pub fn now() -> Instant {
    clock::instant(clock::now())
}

/// Go: timeSleep.
fn sleep_until_nanos(when: u64) {
    let wakeup = Wakeup::contested();
    let limit = WaitTimeout::new(&wakeup);
    limit.start(when);
    // SAFETY: commit — it takes a wakeup, which waits here.
    unsafe { sched::park(WaitReason::Sleep, commit, std::ptr::from_ref(&wakeup).cast()) };
}

/// The caller's context is saved: the timer may make it ready.
///
/// # Safety
/// - **wakeup**: `data` is a `Wakeup`, alive until it is fired.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: wakeup — promised by the caller.
    unsafe { &*data.cast::<Wakeup>() }.commit(g)
}
