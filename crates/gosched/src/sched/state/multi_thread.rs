//! The backend of systems with a port, as a type.

/// [`Backend::MultiThread`](super::backend::Backend), for the contracts that both backends fulfil.
#[derive(Debug)]
pub(crate) struct MultiThread;
