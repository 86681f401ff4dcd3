//! Where a G keeps the state of its code while it does not run: saved registers, and the stack with
//! the goroutine's identity. This module never allocates a stack and never switches to one:
//! `sched::switch` does both.

pub(crate) use gosched_fiber::Size;
pub(crate) use gosched_fiber::arch::{Registers, SavedContext};

use crate::probe;
use gosched_fiber::Stack;
use gosched_fiber::arch;
use std::mem::MaybeUninit;

/// The stack of a G. Owner only.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The stack, from before the first run. A dead G may keep a stack of the default size for its
    /// next goroutine.
    pub(crate) stack: Option<Stack>,
    /// The size that the program requested, or `None` for the default size.
    pub(crate) size: Option<Size>,
}

impl Frame {
    pub(crate) const fn new() -> Frame {
        Frame { stack: None, size: None }
    }
}

/// Captures the registers of the calling frame, for
/// [`G::enter_syscall`](super::g::G::enter_syscall).
#[inline(always)]
pub(crate) fn capture_registers(to: &mut MaybeUninit<Registers>) {
    if probe::ENABLED {
        // SAFETY: to — `to` is valid for writes.
        unsafe { arch::capture_registers(to.as_mut_ptr()) };
    }
}
