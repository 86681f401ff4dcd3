//! The id of a goroutine. This module never assigns an id: the code that starts a goroutine does.

use std::fmt;
use std::num::NonZeroU64;

/// The id of a goroutine.
///
/// An id is unique in the process and never reused. The main goroutine has the id 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoId(NonZeroU64);

impl GoId {
    pub(crate) fn new(id: u64) -> GoId {
        GoId(NonZeroU64::new(id).unwrap_or(NonZeroU64::MAX))
    }

    /// Returns the id as a number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for GoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
