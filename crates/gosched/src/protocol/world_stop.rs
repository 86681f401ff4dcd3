//! Stopping the world: the count of Ps that have not stopped, and the flag that announces the stop.
//!
//! - Stopper: 1. under the lock: sets [`AttentionFlag::Stopping`] and the count, and counts as
//!   stopped its own P, all idle Ps, and the Ps for which no M was found yet; 2. requests that
//!   every running M stops; 3. waits until the count is 0 ([`wait_for_ps`]). Later, or when it
//!   cancels the stop: 4. under the lock: clears the flag and the count; 5. hands every P with work
//!   to an M, and makes the other Ps idle.
//! - M: 1. sees the flag; 2. under the lock: checks the flag again, and counts its P as stopped;
//!   the last one wakes the stopper; 3. sleeps.
//!
//! *The lock* is the scheduler's. It protects the count, and every write of the flag. So a P is
//! counted only while the stop that announced it is under way: an M that has seen the flag of a
//! stop that was cancelled meanwhile finds the flag clear in its step 2, and keeps its P.
//!
//! The stopper that cancels a stop finds out under the lock that the count is not 0, and performs
//! step 4 in the same critical section. So a stop is either complete or cancelled, never both.
//!
//! This module never decides which Ps stop, and never takes the lock itself.

use super::attention::{Attention, AttentionFlag};
use super::note::Note;
use crate::sys::fatal::fatal;
use std::time::Duration;

/// The number of Ps that have not stopped yet. Protected by the lock.
/// Go: sched.stopwait.
#[derive(Debug)]
pub(crate) struct StopCount(u32);

impl StopCount {
    pub(crate) const fn new() -> StopCount {
        StopCount(0)
    }

    /// Announces a stop of `ps` Ps: step 1 of the stopper.
    pub(crate) fn announce(&mut self, attention: &Attention, ps: u32) {
        attention.set(AttentionFlag::Stopping, true);
        self.0 = ps;
    }

    /// Counts a P as stopped, and wakes the stopper if it was the last one. Step 2 of an M: the
    /// caller has found [`AttentionFlag::Stopping`] set in the same critical section.
    pub(crate) fn count_stopped(&mut self, attention: &Attention, stopper: &Note) {
        if !attention.is_stopping() || self.0 == 0 {
            fatal!("a P stops although no stop waits for it");
        }
        self.0 -= 1;
        if self.0 == 0 {
            stopper.wake();
        }
    }

    /// Ends the stop, complete or not: step 4 of the stopper.
    pub(crate) fn end(&mut self, attention: &Attention) {
        attention.set(AttentionFlag::Stopping, false);
        self.0 = 0;
    }

    /// Returns the number of Ps that have not stopped yet.
    pub(crate) fn left(&self) -> u32 {
        self.0
    }
}

/// Performs step 3 of the stopper: waits until the count is 0. `lock` takes the lock. If `is_over`
/// returns true first, returns the lock as an error: under that lock, the caller cancels the stop.
/// Calls `request_again` whenever `interval` has passed: a P that was in flight during the first
/// requests may have been acquired meanwhile.
pub(crate) fn wait_for_ps<L>(
    stopper: &Note,
    interval: Duration,
    lock: impl Fn() -> L,
    count: impl Fn(&L) -> &StopCount,
    is_over: impl Fn() -> bool,
    request_again: impl Fn(),
) -> Result<(), L> {
    loop {
        let locked = lock();
        if count(&locked).left() == 0 {
            return Ok(());
        }
        if is_over() {
            return Err(locked);
        }
        drop(locked);
        if !stopper.sleep(Some(interval)) {
            request_again();
        }
    }
}
