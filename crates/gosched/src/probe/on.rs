//! What happens is written down, for whoever looks.

/// Whether it is: known when the program is built.
pub(crate) const ENABLED: bool = true;
