//! The error for systems on which goroutines cannot have thread-locals of their own. This module
//! never decides what is supported: `identity` and `no_port` do.

use std::fmt;

/// The reason why goroutines cannot have an identity of their own on this system. A program then
/// runs each goroutine as a thread.
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

    /// Creates an error for a resource that the system lacks at the moment: a later attempt may
    /// succeed.
    #[cfg_attr(not(ported), expect(dead_code, reason = "used only by ports"))]
    pub(crate) fn transient(wanted: &'static str, found: impl Into<String>) -> Unsupported {
        Unsupported { wanted, found: found.into(), passing: true }
    }

    #[cfg_attr(not(ported), expect(dead_code, reason = "used only by ports"))]
    pub(crate) fn is_transient(&self) -> bool {
        self.passing
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "goroutines cannot have their own thread-locals on this system: wanted {}, found {}",
            self.wanted, self.found
        )
    }
}

impl std::error::Error for Unsupported {}
