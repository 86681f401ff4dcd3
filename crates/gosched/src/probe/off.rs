//! The counterpart of `on` for measuring what recording costs: `--cfg gosched_no_probes`. Dumps,
//! metrics and hints of a program that is built this way are wrong. In such a program a probe point
//! never calls its listener.

/// Whether data for inspection is recorded: see `on`.
pub(crate) const ENABLED: bool = false;
