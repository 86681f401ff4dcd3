//! Recording is on: data for dumps, metrics and hints is written. Recording is never turned off at
//! run time.

/// Whether data for inspection is recorded. Decided at build time.
pub(crate) const ENABLED: bool = true;
