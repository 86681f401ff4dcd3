//! Where a G's code is while it does not run: registers, stack, identity.

use gosched_context::arch::Saved;
use gosched_context::{Size, Stack};

/// The owner's part of a G.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) saved: Saved,
    /// From its first run to its end.
    pub(crate) stack: Option<Stack>,
    /// Asked for by the program; else the default.
    pub(crate) size: Option<Size>,
}

impl Frame {
    pub(crate) const fn new() -> Frame {
        Frame { saved: Saved::running(0), stack: None, size: None }
    }
}
