//! The error of an attribute: one sentence that states the problem and the remedy, and its place.
//! An error never reports itself: `expand` turns it into a `compile_error!`.

/// An error in the use of an attribute. `S` is a place in the source: the compiler's span or, in
/// unit tests, an offset.
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
