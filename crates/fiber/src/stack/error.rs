//! Errors of creating a stack: what was requested, and what the system reported. This module never
//! reads errno: the code that creates an error passes the number.

use std::fmt;
use std::io;

/// The error of a stack that could not be created. A failure leaves no partly created stack behind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackError {
    /// The requested size is 0 or greater than [`MAX_USABLE`](super::MAX_USABLE).
    Size {
        /// The requested number of usable bytes.
        asked: usize,
    },
    /// `GOSCHED_STACK` is not a size.
    Environment {
        /// The value of the variable.
        text: String,
    },
    /// The system refused memory or address space.
    Memory {
        /// The operation that failed.
        doing: &'static str,
        /// The number of bytes requested.
        bytes: usize,
        /// The error number that the system reported.
        errno: i32,
    },
    /// Another guard would bring the process too close to `vm.max_map_count`.
    Mappings {
        /// Number of mappings of the process, including those of stacks.
        used: usize,
        /// Number of mappings beyond which no more stacks are created.
        limit: usize,
    },
    /// The slab table is full: no more address space can be reserved for stacks.
    Slabs {
        /// Number of slabs in use.
        slabs: usize,
    },
    /// The calling thread is ending and can no longer carry goroutines.
    ThreadEnds,
    /// Goroutines cannot have an identity on this system.
    Unsupported(&'static crate::Unsupported),
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StackError::Size { asked } => write!(
                f,
                "a stack of {asked} bytes is not possible: request between 1 byte and {} GiB",
                super::size::MAX_USABLE >> 30
            ),
            StackError::Environment { text } => write!(
                f,
                "GOSCHED_STACK is {text:?}: set it to a number of bytes, such as 262144, 512k or 1m"
            ),
            StackError::Memory { doing, bytes, errno } => write!(
                f,
                "{doing} ({bytes} bytes) failed: {}",
                io::Error::from_raw_os_error(*errno)
            ),
            StackError::Mappings { used, limit } => write!(
                f,
                "cannot create a guard for another stack: the process has {used} memory mappings, and stacks are \
                 created only up to {limit}; raise vm.max_map_count, or use Linux 6.13 or later, where \
                 guards need no mappings"
            ),
            StackError::Slabs { slabs } => write!(
                f,
                "cannot reserve more address space for stacks: all {slabs} slabs are in use"
            ),
            StackError::ThreadEnds => write!(
                f,
                "a thread that is ending cannot run goroutines: its destructors are running"
            ),
            StackError::Unsupported(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for StackError {}

impl From<StackError> for io::Error {
    fn from(error: StackError) -> io::Error {
        let kind = match &error {
            StackError::Size { .. } | StackError::Environment { .. } => io::ErrorKind::InvalidInput,
            StackError::Memory { .. } | StackError::Mappings { .. } | StackError::Slabs { .. } => {
                io::ErrorKind::OutOfMemory
            }
            StackError::ThreadEnds | StackError::Unsupported(_) => io::ErrorKind::Unsupported,
        };
        io::Error::new(kind, error)
    }
}
