//! The time that is later than all others, as in the product. A model decides itself what time it
//! is.

/// A time that is later than every other time.
pub(crate) const NEVER: u64 = u64::MAX;
