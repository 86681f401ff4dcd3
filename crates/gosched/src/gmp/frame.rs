//! Where a G's code is while it does not run: registers, stack, identity.

pub(crate) use gosched_fiber::Size;
pub(crate) use gosched_fiber::arch::{Registers, SavedContext};

use crate::probe;
use gosched_fiber::Stack;
use gosched_fiber::arch;
use std::mem::MaybeUninit;

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

/// The registers of the frame this is called in, for [`G::enter_syscall`](super::g::G::enter_syscall).
#[inline(always)]
pub(crate) fn capture_registers(to: &mut MaybeUninit<Registers>) {
    if probe::ENABLED {
        // SAFETY: to — a place for them.
        unsafe { arch::capture_registers(to.as_mut_ptr()) };
    }
}
