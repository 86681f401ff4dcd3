//! The token of `park` and `unpark`. If `unpark` comes first, the token is kept for the goroutine
//! that it was meant for.
//!
//! - Goroutine: 1. takes the token, if there is one; 2. otherwise sets [`PARKED`], once its context
//!   is saved; 3. is made ready.
//! - Unparker: 1. replaces [`PARKED`] by [`EMPTY`], or leaves the token; 2. makes the goroutine
//!   ready if it was parked.
//! - Timer of a time limit: 1. takes a parked goroutine out, to make it ready; 2. otherwise sets
//!   [`EXPIRED`] for a goroutine that is about to park, which then does not park. A token
//!   overwrites [`EXPIRED`].
//!
//! The word also contains the goroutine's id, since a handle may refer to an earlier goroutine of
//! the same G.
//!
//! This module never makes a goroutine ready: its callers do.

use crate::sys::atomic::{AtomicU64, Ordering};

/// The token word of a goroutine (see the top of this file).
#[derive(Debug)]
pub(crate) struct ParkToken(AtomicU64);

const EMPTY: u64 = 0;
const PARKED: u64 = 1;
const TOKEN: u64 = 2;
const EXPIRED: u64 = 3;
const STATE_BITS: u32 = 2;

impl ParkToken {
    #[inline]
    pub(crate) fn new() -> ParkToken {
        ParkToken(AtomicU64::new(0))
    }

    /// Resets the word for goroutine `id`.
    #[inline]
    pub(crate) fn begin(&self, id: u64) {
        self.0.store(id << STATE_BITS | EMPTY, Ordering::Relaxed);
    }

    /// Takes the token. Returns whether there was one.
    #[inline]
    pub(crate) fn take(&self, id: u64) -> bool {
        self.change(id, TOKEN, EMPTY)
    }

    /// Marks the goroutine as parked. Returns false if there is a token or the time limit has
    /// passed: the goroutine must then continue.
    #[inline]
    pub(crate) fn park(&self, id: u64) -> bool {
        self.change(id, EMPTY, PARKED)
    }

    /// Reports that the time limit of goroutine `id` has passed. Returns whether it was parked: the
    /// caller then makes it ready.
    pub(crate) fn expire(&self, id: u64) -> bool {
        self.change(id, PARKED, EMPTY) || {
            let _ = self.change(id, EMPTY, EXPIRED);
            // The goroutine may have parked in between.
            self.change(id, PARKED, EMPTY)
        }
    }

    /// Clears [`EXPIRED`], when the time limit no longer applies.
    pub(crate) fn unexpire(&self, id: u64) {
        self.change(id, EXPIRED, EMPTY);
    }

    fn change(&self, id: u64, from: u64, to: u64) -> bool {
        let (from, to) = (id << STATE_BITS | from, id << STATE_BITS | to);
        // PAIR park-token: `park` sees what the caller of `unpark` did, and publishes what its own
        // caller did.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Leaves a token for goroutine `id`, unless it is parked. Returns whether it was parked: the
    /// caller then makes it ready.
    #[inline]
    pub(crate) fn unpark(&self, id: u64) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        while now >> STATE_BITS == id {
            // A parked goroutine needs no token: it is made ready.
            let was_parked = now & 3 == PARKED;
            let to = id << STATE_BITS | if was_parked { EMPTY } else { TOKEN };
            // PAIR park-token: publishes what the caller of `unpark` did, and sees what the caller
            // of `park` did.
            match self.0.compare_exchange(now, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return was_parked,
                Err(changed) => now = changed,
            }
        }
        false
    }
}
