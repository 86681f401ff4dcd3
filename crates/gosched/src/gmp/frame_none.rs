//! The counterpart of `frame` where each goroutine is a thread: the system keeps registers and
//! stack. This version never captures the registers of a thread.

/// Empty: the system keeps the stack.
#[derive(Debug)]
pub(crate) struct Frame;

impl Frame {
    pub(crate) const fn new() -> Frame {
        Frame
    }
}

/// Empty: the system saves the registers.
#[derive(Debug)]
pub(crate) struct SavedContext;

impl SavedContext {
    pub(crate) const fn empty(_thread_pointer: usize) -> SavedContext {
        SavedContext
    }
}

/// Empty: the registers of threads are not captured.
#[derive(Debug, Default)]
pub(crate) struct Registers;

/// A stack size. It has no values: the system determines the size of a thread's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {}

/// Does nothing: the registers of threads are not captured.
pub(crate) fn capture_registers(_to: &mut std::mem::MaybeUninit<Registers>) {}
