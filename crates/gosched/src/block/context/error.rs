//! Why a context is over.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a context is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContextError {
    /// Somebody cancelled it, or one it was made from.
    Cancelled,
    /// Its deadline has passed, or that of one it was made from.
    DeadlineExceeded,
}

impl ContextError {
    /// As Go spells it.
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

/// What somebody gave as the reason: see [`Context::cause`](super::Context::cause).
pub type Cause = Arc<dyn Error + Send + Sync>;
