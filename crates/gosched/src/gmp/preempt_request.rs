//! Why, and in which turn on its P, an M is asked to stop its G. Other threads set the request; the
//! M clears it. This module never sends a signal.

use crate::probe::field::PreemptReason;
use std::sync::atomic::{AtomicU64, Ordering};

use PreemptReason::{MakeRoom, Seeded, Slice};

/// A preemption request: the reason in the upper half of the word, the turn in the lower half; 0 if
/// there is none.
#[derive(Debug)]
pub(crate) struct PreemptRequest(AtomicU64);

impl PreemptRequest {
    pub(crate) fn new() -> PreemptRequest {
        PreemptRequest(AtomicU64::new(0))
    }

    /// Sets the request. Replaces an earlier one.
    pub(crate) fn set(&self, why: PreemptReason, turn: u32) {
        self.0.store((why as u64) << 32 | u64::from(turn), Ordering::Relaxed);
    }

    /// Clears the request. Called by the M.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns whether there is a request, perhaps for an earlier turn.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the reason for which an M with a P must stop in this turn. Returns `None` if there
    /// is no such request, or if it is for an earlier turn. A request of the seeded mode is for
    /// any turn. The other two reasons have no turn: a flag of the scheduler announces that the
    /// world stops, and `NoP` is for an M without a P.
    pub(crate) fn reason_in(&self, turn: u32) -> Option<PreemptReason> {
        let word = self.0.load(Ordering::Relaxed);
        let of_a_turn = [Slice, MakeRoom, Seeded];
        let why = of_a_turn.into_iter().find(|&why| why as u64 == word >> 32)?;
        (word as u32 == turn || why == Seeded).then_some(why)
    }

    /// Returns whether the request, for any turn, has this reason.
    pub(crate) fn is_for(&self, why: PreemptReason) -> bool {
        self.0.load(Ordering::Relaxed) >> 32 == why as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_an_earlier_turn_is_out_of_date_unless_the_seed_made_it() {
        let request = PreemptRequest::new();
        assert!(!request.is_set() && request.reason_in(0).is_none());
        for why in [Slice, MakeRoom] {
            request.set(why, u32::MAX);
            assert_eq!(request.reason_in(u32::MAX), Some(why));
            assert_eq!(request.reason_in(0), None);
            assert!(request.is_set() && request.is_for(why) && !request.is_for(Seeded));
        }
        for why in [PreemptReason::NoP, PreemptReason::World] {
            request.set(why, 0);
            assert!(request.is_for(why) && request.reason_in(0).is_none());
        }
        request.set(Seeded, 7);
        assert_eq!(request.reason_in(8), Some(Seeded));
        request.clear();
        assert!(!request.is_set() && request.reason_in(7).is_none());
    }
}
