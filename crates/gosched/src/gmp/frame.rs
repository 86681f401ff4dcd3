//! Where a G's code is while it does not run: registers, stack, identity.

pub(crate) use gosched_context::arch::{Registers, Saved};

use gosched_context::{Size, Stack};

/// The owner's part of a G.
#[derive(Debug)]
pub(crate) struct Frame {
    /// From its first run to its end.
    pub(crate) stack: Option<Stack>,
    /// Asked for by the program; else the default.
    pub(crate) size: Option<Size>,
}

impl Frame {
    pub(crate) const fn new() -> Frame {
        Frame { stack: None, size: None }
    }
}
