//! Replaces `inspector` on systems without a port: goroutines are threads, and their frames are
//! unknown. This version never reads a stack and never fills in a frame.

pub(crate) use super::types::{Frame, Frames, GoroutineStatus, InterruptPolicy, Module};

use crate::gmp::current;
use crate::gmp::g::G;
use crate::probe::wait_reason::WaitReason;
use std::ops::Range;
use std::path::Path;

/// Number of goroutines that callers inspect in a row. Nothing is prefetched for them here.
pub(crate) const BATCH_STACKS: usize = 64;

#[derive(Debug)]
pub(crate) struct Inspector;

/// Returns the calling goroutine.
pub(crate) fn own() -> Option<&'static G> {
    current::goroutine()
}

/// A frame of the caller. Empty: frames are unknown here.
#[derive(Debug)]
pub(crate) struct CallerFrame;

impl CallerFrame {
    pub(crate) fn new() -> CallerFrame {
        CallerFrame
    }
}

/// Reads nothing: memory that may be unmapped cannot be read here.
#[derive(Debug, Default)]
pub(crate) struct MemoryReader;

impl MemoryReader {
    pub(crate) fn word(&mut self, _address: usize) -> Option<usize> {
        None
    }
}

/// Reads nothing, as [`MemoryReader`].
pub(crate) fn read_words(_addresses: Range<usize>, _each: impl FnMut(usize)) {}

/// Returns `None`: there are no Ms.
pub(crate) fn m_of(_g: &'static G) -> Option<(u32, usize)> {
    None
}

/// An ordinary thread that waits for a goroutine.
#[derive(Debug)]
pub(crate) struct WaitingThread {
    pub(crate) id: i32,
    pub(crate) reason: WaitReason,
}

/// Returns none: waiting threads are not recorded here.
pub(crate) fn waiting_threads() -> impl Iterator<Item = WaitingThread> {
    std::iter::empty()
}

impl Inspector {
    pub(crate) fn inspect_thread(&mut self, _thread: &WaitingThread, _frames: &mut Frames) {}

    pub(crate) fn new(_policy: InterruptPolicy) -> Inspector {
        Inspector
    }

    pub(crate) fn prefetch(&mut self, _gs: impl Iterator<Item = &'static G>) {}

    pub(crate) fn inspect(
        &mut self,
        g: &'static G,
        _frames: &mut Frames,
    ) -> Option<GoroutineStatus> {
        let look = GoroutineStatus {
            state: g.state(),
            m: None,
            reason: g.reason(),
            since: Some(g.since()),
        };
        look.state.is_alive().then_some(look)
    }

    pub(crate) fn words(
        &mut self,
        _g: &'static G,
        _here: &CallerFrame,
        _each: impl FnMut(usize),
    ) -> Option<bool> {
        Some(false)
    }

    pub(crate) fn function(&self, _address: usize) -> Option<usize> {
        None
    }

    /// Returns the program itself: there are no frames, and all other addresses are in the program.
    pub(crate) fn module(&self, address: usize) -> Option<Module<'_>> {
        Some(Module { path: Path::new(""), offset: address, id: &[], function: None })
    }
}
