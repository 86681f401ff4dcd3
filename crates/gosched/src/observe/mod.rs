//! What a person asks of a running program.

pub(crate) mod metrics;
pub(crate) mod sched_trace;
