//! The answer of a system where goroutines cannot be what this crate makes them.

use std::fmt;

/// Why goroutines cannot have an identity of their own here. A program then runs them as threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    wanted: &'static str,
    found: String,
}

impl Unsupported {
    pub(crate) fn new(wanted: &'static str, found: impl Into<String>) -> Unsupported {
        Unsupported { wanted, found: found.into() }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "goroutines cannot have thread-locals of their own here: wanted {}, found {}",
            self.wanted, self.found
        )
    }
}

impl std::error::Error for Unsupported {}
