//! Stand-ins for the types of the product's `gmp` that waiters name.

/// The record of a goroutine.
pub(crate) mod g {
    pub(crate) use crate::g::G;
}
