//! The answer of a system where goroutines cannot be what this crate makes them.

use std::fmt;

/// Why goroutines cannot have an identity of their own here. A program then runs them as threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    wanted: &'static str,
    found: String,
    passing: bool,
}

impl Unsupported {
    pub(crate) fn new(wanted: &'static str, found: impl Into<String>) -> Unsupported {
        Unsupported { wanted, found: found.into(), passing: false }
    }

    /// The system lacked something that it may have another time.
    #[cfg_attr(not(ported), expect(dead_code, reason = "only a port asks for anything"))]
    pub(crate) fn transient(wanted: &'static str, found: impl Into<String>) -> Unsupported {
        Unsupported { wanted, found: found.into(), passing: true }
    }

    #[cfg_attr(not(ported), expect(dead_code, reason = "only a port asks for anything"))]
    pub(crate) fn is_transient(&self) -> bool {
        self.passing
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
