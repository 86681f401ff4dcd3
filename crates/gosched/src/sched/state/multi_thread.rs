//! The M:N backend as a type. Exists only on systems with a port. This module never implements the
//! backend: `sched/multi_thread.rs` and `inspect/tables.rs` do.

/// [`Backend::MultiThread`](super::backend::Backend) as a type, for the traits that both backends
/// implement.
#[derive(Debug)]
pub(crate) struct MultiThread;
