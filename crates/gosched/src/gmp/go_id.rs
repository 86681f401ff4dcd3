//! The number of a goroutine.

use std::fmt;
use std::num::NonZeroU64;

/// A goroutine's number: unique in the process, never used again. Main's is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoId(NonZeroU64);

impl GoId {
    pub(crate) fn new(id: u64) -> GoId {
        GoId(NonZeroU64::new(id).unwrap_or(NonZeroU64::MAX))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for GoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
