//! The twin of `on` that shows what it costs: `--cfg gosched_no_probes`. Dumps, metrics and hints of a program that is
//! built so are wrong.

/// See there.
pub(crate) const ENABLED: bool = false;
