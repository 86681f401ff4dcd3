//! Random numbers for scheduling decisions: fast, without a lock, not for cryptography. After
//! `start`, a sequence never depends on the clock or the system: the seed and its number determine
//! it.

use gosched_fiber::base::environment;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A sequence of random numbers. Only its owner draws from it; a race would only repeat a number.
#[derive(Debug)]
pub(crate) struct Random(AtomicU32);

impl Random {
    /// Creates a sequence, which depends only on the seed and on `number`. Different numbers give
    /// different sequences.
    pub(crate) fn new(number: u32) -> Random {
        let mixed = mix(SEED.load(Ordering::Relaxed) ^ (u64::from(number) << 32 | 1));
        Random(AtomicU32::new((mixed as u32) | 1))
    }

    /// Returns the next number of the sequence (xorshift); never 0.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.0.store(x, Ordering::Relaxed);
        x
    }
}

/// The seed of all sequences, derived from the environment or from the clock. Written by [`start`].
static SEED: AtomicU64 = AtomicU64::new(0);

/// Returns the seed of all sequences.
#[inline]
pub(crate) fn seed() -> u64 {
    SEED.load(Ordering::Relaxed)
}

/// The seed in the environment, if there is one. Set by [`start`].
static EXPLICIT_SEED: OnceLock<Option<u64>> = OnceLock::new();

/// Sets the seed, from the environment or from the clock. Called once, before the first
/// [`Random::new`].
pub(crate) fn start() {
    let given = EXPLICIT_SEED.get_or_init(seed_in_environment);
    let now =
        || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    SEED.store(mix(given.unwrap_or_else(now)), Ordering::Relaxed);
}

/// Returns the seed from the environment, with which this run can be replayed. Returns `None` if
/// the environment has no seed.
pub(crate) fn explicit_seed() -> Option<u64> {
    EXPLICIT_SEED.get().copied().flatten()
}

/// Reads the seed from the environment.
pub(crate) fn seed_in_environment() -> Option<u64> {
    environment::SEED.read()?.to_str()?.trim().parse().ok()
}

/// Spreads every input bit over all output bits (the finalizer of splitmix64).
fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_seeds_draw_different_first_numbers() {
        let first: Vec<u32> = (0..100).map(|n| Random::new(n).next()).collect();
        let mut sorted = first.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), first.len());
    }

    #[test]
    fn a_sequence_does_not_repeat_within_1000_numbers() {
        let random = Random::new(7);
        let drawn: std::collections::HashSet<u32> = (0..1000).map(|_| random.next()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
