//! How a test waits: for a condition, never for time to pass.
//!
//! Each wait ends with the event it waits for. The limits only turn a hang into a failure, so they are far above what
//! the slowest machine needs. How *soon* something happens is no question for a test: `benches/limits` measures that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A condition that does not hold after this time never will.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A child process that has not ended after this time hangs. Longer than [`LIMIT`], so that the
/// failure of a wait inside the child is reported by the child.
pub const CHILD_LIMIT: Duration = Duration::from_secs(300);

/// Waits until the condition holds. Goroutines and threads may call it.
///
/// # Panics
/// The condition does not hold within [`LIMIT`].
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "after {LIMIT:?} it still does not hold that {what}");
        pause(Duration::from_micros(500));
    }
}

/// [`until`] for conditions that need no name.
///
/// # Panics
/// The condition does not hold within [`LIMIT`].
#[track_caller]
pub fn eventually(condition: impl FnMut() -> bool) {
    until("the condition is met", condition);
}

/// How long [`settle`] sleeps, in milliseconds. Grows on a machine that turns out to be slow.
static SETTLING_MILLIS: AtomicU64 = AtomicU64::new(10);
const LONGEST_SETTLING_MILLIS: u64 = 5_000;

/// Gives others time to reach the point where they wait, where nothing tells that they did. A test whose
/// outcome depends on that runs inside [`retry_until_eq`].
pub fn settle() {
    pause(Duration::from_millis(SETTLING_MILLIS.load(Relaxed)));
}

/// Repeats an attempt that calls [`settle`] until its outcome is the expected one. Each failure doubles the time
/// that `settle` takes, so a slow machine needs more attempts and a defect fails all of them.
///
/// # Panics
/// The outcome is another one for the whole of [`LIMIT`].
#[track_caller]
pub fn retry_until_eq<T: PartialEq + std::fmt::Debug>(expected: T, attempt: impl Fn() -> T) {
    let deadline = Instant::now() + LIMIT;
    let mut found = Vec::new();
    loop {
        let outcome = attempt();
        if outcome == expected {
            return;
        }
        found.push(outcome);
        assert!(Instant::now() < deadline, "never {expected:?}, but {found:?}");
        let doubled = SETTLING_MILLIS.load(Relaxed) * 2;
        SETTLING_MILLIS.store(doubled.min(LONGEST_SETTLING_MILLIS), Relaxed);
    }
}

/// Repeats an attempt that the machine may spoil until it succeeds. A defect fails every attempt.
///
/// # Panics
/// All attempts within [`LIMIT`] fail: with what the last one said.
#[track_caller]
pub fn retry<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        match attempt() {
            Ok(outcome) => return outcome,
            Err(why) => assert!(Instant::now() < deadline, "in no attempt: {why}"),
        }
    }
}

/// Parks a goroutine, or blocks a thread without starting the runtime.
fn pause(time: Duration) {
    if gosched::id().is_some() {
        gosched::time::sleep(time);
    } else {
        std::thread::sleep(time);
    }
}
