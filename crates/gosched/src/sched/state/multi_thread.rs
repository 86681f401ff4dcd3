//! The M:N backend as a type. Exists only on systems with a port.

/// [`Backend::MultiThread`](super::backend::Backend) as a type, for the traits that both backends
/// implement.
#[derive(Debug)]
pub(crate) struct MultiThread;
