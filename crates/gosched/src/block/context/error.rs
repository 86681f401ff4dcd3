//! The errors with which contexts end. A `ContextError` never contains the reason that was given
//! for a cancellation: `Context::cause` returns the reason.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a context is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContextError {
    /// The context, or one from which it was derived, was cancelled.
    Cancelled,
    /// The deadline of the context, or of one from which it was derived, has passed.
    DeadlineExceeded,
}

impl ContextError {
    /// [`ContextError::Cancelled`] in Go's spelling.
    #[expect(non_upper_case_globals, reason = "it stands for a variant")]
    pub const Canceled: ContextError = ContextError::Cancelled;
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContextError::Cancelled => "context canceled",
            ContextError::DeadlineExceeded => "context deadline exceeded",
        })
    }
}

impl Error for ContextError {}

/// The reason given for a cancellation: see [`Context::cause`](super::Context::cause).
pub type Cause = Arc<dyn Error + Send + Sync>;
