//! The counterpart of `counter` for other CPUs. This module never reads a counter.

/// There is no counter.
pub(crate) const READ: Option<fn() -> u64> = None;
