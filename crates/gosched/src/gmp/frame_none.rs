//! The twin of `frame` where a goroutine is a thread: the system keeps it.

/// Nothing to keep.
#[derive(Debug)]
pub(crate) struct Frame;

impl Frame {
    pub(crate) const fn new() -> Frame {
        Frame
    }
}

/// As little.
#[derive(Debug)]
pub(crate) struct SavedContext;

impl SavedContext {
    pub(crate) const fn empty(_thread_pointer: usize) -> SavedContext {
        SavedContext
    }
}

/// Nor registers.
#[derive(Debug, Default)]
pub(crate) struct Registers;

/// The system knows how large a thread's stack is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {}

/// Registers of threads are not kept.
pub(crate) fn capture_registers(_to: &mut std::mem::MaybeUninit<Registers>) {}
