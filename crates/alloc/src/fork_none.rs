//! Where there is no fork there is nothing to do.

/// Does nothing.
pub(crate) fn install() {}
