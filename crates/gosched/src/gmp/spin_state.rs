//! Whether an M is counted as spinning.
//!
//! An M that starts or stops spinning itself changes its flag and the count together
//! ([`SpinState::start`] and the two functions to stop). A waker counts the M before the M runs;
//! the flag then travels with the P, and the M takes it over. This module never wakes an M and
//! never decides whether an M may spin: `wake` does.

use crate::protocol::waking::WakeCounts;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an M, or the M that a P waits for, is counted in [`WakeCounts`] as spinning. Written by
/// the owner of the M or P.
/// Go: m.spinning.
#[derive(Debug)]
pub(crate) struct SpinState(AtomicBool);

impl SpinState {
    pub(crate) const fn new() -> SpinState {
        SpinState(AtomicBool::new(false))
    }

    #[inline]
    pub(crate) fn is_spinning(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Records whether the M is spinning: another thread has counted the M already, or has not.
    pub(crate) fn set_counted(&self, is_counted: bool) {
        self.0.store(is_counted, Ordering::Relaxed);
    }

    /// Returns whether the M that the P waits for is counted, and passes the count on to the
    /// caller.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    /// Counts an M that starts to spin.
    /// Go: becomeSpinning.
    pub(crate) fn start(&self, counts: &WakeCounts) {
        self.0.store(true, Ordering::Relaxed);
        counts.start_spinning();
    }

    /// Removes a spinning M from the count because it has found work.
    pub(crate) fn stop_with_work(&self, counts: &WakeCounts) {
        self.0.store(false, Ordering::Relaxed);
        counts.stop_spinning_with_work();
    }

    /// Removes the M from the count, if it is spinning, because it has found no work or will not
    /// be made.
    pub(crate) fn stop_without_work(&self, counts: &WakeCounts) {
        if self.is_spinning() {
            self.0.store(false, Ordering::Relaxed);
            counts.stop_spinning_without_work();
        }
    }
}
