//! Histograms of durations with Go's buckets: each power of two is divided into four buckets, from
//! 64 ns to about 39 hours.
//!
//! Recording is two additions; a concurrent reader may see only the first. Recording never
//! allocates and never takes a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Durations with fewer bits than this share the first four buckets.
const MIN_BITS: u32 = 9;
/// Durations with this many bits or more are beyond the last bucket.
const MAX_BITS: u32 = 48;
/// Each power of two is divided into `1 << SUB_BITS` buckets.
const SUB_BITS: u32 = 2;
const SUB_BUCKETS: usize = 1 << SUB_BITS;

/// Number of buckets, without the two that Go has at the ends: below zero, and beyond the last
/// bound.
const BUCKETS: usize = (MAX_BITS - MIN_BITS + 1) as usize * SUB_BUCKETS;

/// A histogram of durations (see the top of this file).
/// Go: timeHistogram.
#[derive(Debug)]
pub(crate) struct TimeHistogram {
    counts: [AtomicU64; BUCKETS],
    /// Number of durations beyond the last bucket.
    overflow: AtomicU64,
    /// Sum of all durations, in nanoseconds.
    sum: AtomicU64,
}

impl TimeHistogram {
    pub(crate) const fn new() -> TimeHistogram {
        TimeHistogram {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            overflow: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// Records a duration of `nanos` nanoseconds.
    pub(crate) fn record(&self, nanos: u64) {
        let place = bucket(nanos).map_or(&self.overflow, |bucket| &self.counts[bucket]);
        place.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Adds what was recorded so far to `durations`.
    pub(crate) fn add_to(&self, durations: &mut Durations) {
        let inside = durations.counts[1..].iter_mut();
        for (sum, count) in inside.zip(self.counts.iter().chain([&self.overflow])) {
            *sum += count.load(Ordering::Relaxed);
        }
        durations.sum_nanos += self.sum.load(Ordering::Relaxed);
    }
}

fn bucket(nanos: u64) -> Option<usize> {
    let bits = u64::BITS - nanos.leading_zeros();
    let (top, power) =
        if bits < MIN_BITS { (MIN_BITS, 0) } else { (bits, (bits - MIN_BITS + 1) as usize) };
    let part = (nanos >> (top - 1 - SUB_BITS)) as usize % SUB_BUCKETS;
    (bits < MAX_BITS).then_some(power * SUB_BUCKETS + part)
}

/// The contents of histograms when they were read: one count for each pair of adjacent [`bounds`].
#[derive(Clone, Debug)]
pub(crate) struct Durations {
    pub(crate) counts: Vec<u64>,
    pub(crate) sum_nanos: u64,
}

impl Durations {
    /// Creates an empty value. Allocates.
    pub(crate) fn new() -> Durations {
        Durations { counts: vec![0; BUCKETS + 2], sum_nanos: 0 }
    }
}

/// Returns Go's bounds in seconds: the first is negative infinity, the last is infinity.
pub(crate) fn bounds() -> Vec<f64> {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let first = (0..SUB_BUCKETS as u64).map(|part| part << (MIN_BITS - 1 - SUB_BITS));
    let powers = (MIN_BITS..MAX_BITS).flat_map(|bits| {
        (0..SUB_BUCKETS as u64).map(move |part| (1 << (bits - 1)) | (part << (bits - 1 - SUB_BITS)))
    });
    let inside = first.chain(powers).chain([1 << (MAX_BITS - 1)]).map(seconds);
    [f64::NEG_INFINITY].into_iter().chain(inside).chain([f64::INFINITY]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_between_the_bounds_of_its_bucket() {
        let bounds = bounds();
        let mut nanos: Vec<u64> = (0..600).collect();
        nanos.extend((0..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
        for nanos in nanos {
            let histogram = TimeHistogram::new();
            histogram.record(nanos);
            let mut read = Durations::new();
            histogram.add_to(&mut read);
            assert_eq!(bounds.len(), read.counts.len() + 1);
            assert_eq!((read.counts.iter().sum::<u64>(), read.sum_nanos), (1, nanos));
            let bucket = read.counts.iter().position(|&count| count == 1).unwrap();
            let seconds = nanos as f64 / 1e9;
            assert!(bounds[bucket] <= seconds && seconds < bounds[bucket + 1], "{nanos}");
        }
    }

    #[test]
    fn bucket_bounds_are_the_same_as_in_go() {
        let bounds = bounds();
        assert!(bounds.is_sorted() && bounds.len() == 163);
        let ends = [bounds[1], bounds[2], bounds[5], bounds[160], bounds[161]];
        assert_eq!(ends, [0.0, 64e-9, 256e-9, 123145.302310912, 140737.488355328]);
    }
}
