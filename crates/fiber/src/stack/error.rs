//! Why there is no stack: each case says what was wanted and what the system said.

use std::fmt;
use std::io;

/// A stack could not be had. Nothing is left behind half-made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackError {
    /// The size cannot be had on any system.
    Size {
        /// Usable bytes that were asked for.
        asked: usize,
    },
    /// `GOSCHED_STACK` cannot be read.
    Environment {
        /// What it says.
        text: String,
    },
    /// The system refused memory or address space.
    Memory {
        /// What was to be done with it.
        doing: &'static str,
        /// How many bytes.
        bytes: usize,
        /// What the system said.
        errno: i32,
    },
    /// One more guard would bring the process near `vm.max_map_count`.
    Mappings {
        /// Mappings that the process has, those of stacks included.
        used: usize,
        /// How many there may be before stacks take no more.
        limit: usize,
    },
    /// More address space is reserved for stacks than this crate can number.
    Slabs {
        /// How many slabs there are.
        slabs: usize,
    },
    /// The calling thread is ending, and cannot carry goroutines any more.
    ThreadEnds,
    /// Goroutines cannot have an identity on this system at all.
    Unsupported(&'static crate::Unsupported),
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StackError::Size { asked } => write!(
                f,
                "a stack of {asked} bytes cannot be had: ask for 1 byte to {} GiB",
                super::size::MAX_USABLE >> 30
            ),
            StackError::Environment { text } => write!(
                f,
                "GOSCHED_STACK is {text:?}: it takes a number of bytes, such as 262144, 512k or 1m"
            ),
            StackError::Memory { doing, bytes, errno } => write!(
                f,
                "{doing} ({bytes} bytes) failed: {}",
                io::Error::from_raw_os_error(*errno)
            ),
            StackError::Mappings { used, limit } => write!(
                f,
                "no guard for one more stack: the process has {used} memory mappings, and stacks take \
                 no more past {limit}; raise vm.max_map_count, or use Linux 6.13 or later, where \
                 guards need none"
            ),
            StackError::Slabs { slabs } => write!(
                f,
                "no more address space for stacks: {slabs} slabs are in use, the most there can be"
            ),
            StackError::ThreadEnds => write!(
                f,
                "a thread that is ending cannot carry goroutines: its destructors are running"
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
