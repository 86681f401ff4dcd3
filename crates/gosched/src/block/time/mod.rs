//! Time: sleeping, timers, tickers and time limits.
//!
//! A sleep never ends early, and a timer never fires early.

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
use crate::gmp::commit::Commit;
use crate::gmp::g::G;
use crate::probe::wait_reason::WaitReason;
use crate::sched;
use crate::sys::clock;
use std::time::{Duration, Instant};

/// Blocks the calling goroutine for at least `duration`. Other goroutines run meanwhile.
///
/// On an ordinary thread, the thread sleeps.
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

/// Blocks the calling goroutine until `instant`.
pub fn sleep_until(instant: Instant) {
    sleep(instant.saturating_duration_since(now()));
}

/// Returns the time that timers use: [`Instant::now`], or the virtual time in a test that runs in
/// virtual time, `#[gosched::test(virtual_time)]`.
#[doc(alias = "Now")]
pub fn now() -> Instant {
    clock::instant(clock::now())
}

/// Parks the caller until `when`, in nanoseconds of `clock::now`.
/// Go: timeSleep.
fn sleep_until_nanos(when: u64) {
    let wakeup = Wakeup::contested();
    let limit = WaitTimeout::new(&wakeup);
    limit.start(when);
    // SAFETY: commit — it takes a wakeup, which is alive during this call.
    let commit = unsafe { Commit::new(commit, std::ptr::from_ref(&wakeup).cast()) };
    sched::park(WaitReason::Sleep, commit);
}

/// Publishes the parked G, whose context is saved, to the timer.
///
/// # Safety
/// - **wakeup**: `data` is a `Wakeup`, alive until it is fired.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: wakeup — promised by the caller.
    unsafe { &*data.cast::<Wakeup>() }.commit(g)
}
