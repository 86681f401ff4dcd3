//! The twin of `frame` where a goroutine is a thread: the system keeps it.

/// Nothing to keep.
#[derive(Debug)]
pub(crate) struct Frame;

impl Frame {
    pub(crate) const fn new() -> Frame {
        Frame
    }
}
