//! The counterpart of `on` for measuring what recording costs: `--cfg gosched_no_probes`. Dumps,
//! metrics and hints of a program that is built this way are wrong.

/// Whether data for inspection is recorded: see `on`.
pub(crate) const ENABLED: bool = false;
