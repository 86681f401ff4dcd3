//! Stand-in for `fork` on systems that have no fork. `install` never registers a handler.

/// Does nothing.
pub(crate) fn install() {}
