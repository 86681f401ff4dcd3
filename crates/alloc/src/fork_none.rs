//! Stand-in for `fork` on systems that have no fork.

/// Does nothing.
pub(crate) fn install() {}
