//! The token of `park` and `unpark`: one that comes first is kept, for the goroutine it was meant for.
//!
//! Goroutine: 1. takes the token, if it is there; 2. else leaves [`PARKED`], after its context was
//! saved; 3. is made ready.
//! Others: 1. leave the token; 2. make the goroutine ready if they found [`PARKED`].
//!
//! A time limit: 1. takes a parked goroutine out, to be made ready; 2. or leaves [`EXPIRED`] for one that is
//! about to park, which then does not. A token overwrites that.
//!
//! The word holds the goroutine's id too: a handle may be older than the record's present life.

use crate::sys::atomic::{AtomicU64, Ordering};

/// See the top of this file.
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

    /// For the goroutine `id` from here on.
    #[inline]
    pub(crate) fn begin(&self, id: u64) {
        self.0.store(id << STATE_BITS | EMPTY, Ordering::Relaxed);
    }

    /// Takes the token.
    #[inline]
    pub(crate) fn take(&self, id: u64) -> bool {
        self.change(id, TOKEN, EMPTY)
    }

    /// Says that the goroutine is parked. False if a token is there: it must go on.
    #[inline]
    pub(crate) fn park(&self, id: u64) -> bool {
        self.change(id, EMPTY, PARKED)
    }

    /// The time of goroutine `id` is over. True if it was parked: the caller makes it ready.
    pub(crate) fn expire(&self, id: u64) -> bool {
        self.change(id, PARKED, EMPTY) || {
            let _ = self.change(id, EMPTY, EXPIRED);
            // It may have parked in between.
            self.change(id, PARKED, EMPTY)
        }
    }

    /// Its limit is gone.
    pub(crate) fn unexpire(&self, id: u64) {
        self.change(id, EXPIRED, EMPTY);
    }

    fn change(&self, id: u64, from: u64, to: u64) -> bool {
        let (from, to) = (id << STATE_BITS | from, id << STATE_BITS | to);
        // PAIR park-token: what `unpark`'s caller did is seen; what `park`'s did is published.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Leaves a token for goroutine `id`. True if it was parked: the caller makes it ready.
    #[inline]
    pub(crate) fn unpark(&self, id: u64) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        while now >> STATE_BITS == id {
            // A parked one takes its token by being made ready.
            let was_parked = now & 3 == PARKED;
            let to = id << STATE_BITS | if was_parked { EMPTY } else { TOKEN };
            // PAIR park-token: as above, from the other side.
            match self.0.compare_exchange(now, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return was_parked,
                Err(changed) => now = changed,
            }
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_comes_first_is_kept_once() {
        let token = ParkToken::new();
        token.begin(7);
        assert!(!token.unpark(7));
        assert!(!token.unpark(7), "tokens do not add up");
        assert!(!token.park(7));
        assert!(token.take(7));
        assert!(!token.take(7));
    }

    #[test]
    fn whoever_finds_it_parked_makes_it_ready() {
        let token = ParkToken::new();
        token.begin(7);
        assert!(token.park(7));
        assert!(token.unpark(7));
        assert!(!token.unpark(7), "it is made ready once");
    }

    #[test]
    fn a_limit_takes_a_parked_one_out_and_keeps_others_from_parking() {
        let token = ParkToken::new();
        token.begin(7);
        assert!(token.park(7));
        assert!(token.expire(7));
        assert!(!token.expire(7));
        assert!(!token.park(7), "the second limit has left a sign");
        token.unexpire(7);
        assert!(token.park(7));
        assert!(token.unpark(7));
        assert!(!token.expire(7) && !token.unpark(7));
        token.unexpire(7);
        assert!(token.take(7), "a token overwrites the sign");
    }

    #[test]
    fn a_token_for_an_earlier_life_is_nobodys() {
        let token = ParkToken::new();
        token.begin(8);
        assert!(!token.unpark(7));
        assert!(!token.take(8));
        assert!(token.park(8));
        assert!(!token.unpark(7));
    }
}
