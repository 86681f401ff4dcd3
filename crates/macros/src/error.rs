//! What is wrong, in one sentence with the remedy, and where.

/// A refusal. `S` is a place in the source: the compiler's spans, or in unit tests an offset.
#[derive(Debug)]
pub(crate) struct Error<S> {
    pub(crate) message: String,
    pub(crate) span: S,
}

impl<S> Error<S> {
    pub(crate) fn new(span: S, message: impl Into<String>) -> Error<S> {
        Error { message: message.into(), span }
    }
}
