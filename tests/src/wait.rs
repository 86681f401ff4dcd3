//! Waits for tests: for a condition, never for time to pass.
//!
//! Each wait ends with the event it waits for. The limits only turn a hang into a failure, so they
//! are far above what the slowest machine needs. Tests never check how *soon* an event happens:
//! `benches/limits` measures that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The time after which [`until`] gives up on its condition.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The time after which a child process counts as hung. Longer than [`LIMIT`], so that the child
/// itself reports the failure of a wait inside it.
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

/// Waits as [`until`] does, for conditions that need no name.
///
/// # Panics
/// The condition does not hold within [`LIMIT`].
#[track_caller]
pub fn eventually(condition: impl FnMut() -> bool) {
    until("the condition is met", condition);
}

/// How long [`settle`] sleeps, in milliseconds. Doubles with each failed attempt of
/// [`retry_until_eq`].
static SETTLING_MILLIS: AtomicU64 = AtomicU64::new(10);
const LONGEST_SETTLING_MILLIS: u64 = 5_000;

/// Gives other goroutines and threads time to reach their wait, for waits that a test cannot
/// observe. A test whose outcome depends on it runs inside [`retry_until_eq`].
pub fn settle() {
    pause(Duration::from_millis(SETTLING_MILLIS.load(Relaxed)));
}

/// Repeats an attempt that calls [`settle`] until its outcome is the expected one. Each failure
/// doubles the time that `settle` takes, so a slow machine needs more attempts, while a defect
/// fails all attempts.
///
/// # Panics
/// No attempt within [`LIMIT`] has the expected outcome.
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

/// Repeats an attempt until it succeeds, for attempts that other load on the machine can spoil. A
/// defect fails every attempt.
///
/// # Panics
/// All attempts within [`LIMIT`] fail. The message contains the error of the last attempt.
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
