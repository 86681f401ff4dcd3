//! The twin of `inspector` on systems without a port: goroutines are threads there, whose frames are not known.

pub(crate) use super::types::{Frame, Frames, Look, Manners, Module};

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use std::ops::Range;
use std::path::Path;

/// So many are looked at in a row: nothing is made ready for them here.
pub(crate) const MANY: usize = 64;

#[derive(Debug)]
pub(crate) struct Viewer;

/// The goroutine that calls.
pub(crate) fn own() -> Option<&'static G> {
    current::goroutine()
}

/// A place in the caller's code.
#[derive(Debug)]
pub(crate) struct Here;

impl Here {
    pub(crate) fn new() -> Here {
        Here
    }
}

/// Memory of others cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Reader;

impl Reader {
    pub(crate) fn word(&mut self, _address: usize) -> Option<usize> {
        None
    }
}

/// As [`Reader`].
pub(crate) fn read_words(_addresses: Range<usize>, _each: impl FnMut(usize)) {}

/// There are none.
pub(crate) fn m_of(_g: &'static G) -> Option<(u32, usize)> {
    None
}

/// An ordinary thread that waits for a goroutine.
#[derive(Debug)]
pub(crate) struct WaitingThread {
    pub(crate) id: i32,
    pub(crate) reason: WaitReason,
}

/// They are not known.
pub(crate) fn waiting_threads() -> impl Iterator<Item = WaitingThread> {
    std::iter::empty()
}

impl Viewer {
    pub(crate) fn look_at_thread(&mut self, _thread: &WaitingThread, _frames: &mut Frames) {}

    pub(crate) fn new(_manners: Manners) -> Viewer {
        Viewer
    }

    pub(crate) fn look_ahead(&mut self, _gs: impl Iterator<Item = &'static G>) {}

    pub(crate) fn look_at(&mut self, g: &'static G, _frames: &mut Frames) -> Option<Look> {
        let look = Look { state: g.state(), m: None, reason: g.reason(), since: Some(g.since()) };
        look.state.is_alive().then_some(look)
    }

    pub(crate) fn words(
        &mut self,
        _g: &'static G,
        _here: &Here,
        _each: impl FnMut(usize),
    ) -> Option<bool> {
        Some(false)
    }

    pub(crate) fn function(&self, _address: usize) -> Option<usize> {
        None
    }

    /// There are no frames; what else is asked for is the program's.
    pub(crate) fn module(&self, address: usize) -> Option<Module<'_>> {
        Some(Module { path: Path::new(""), offset: address, id: &[], function: None })
    }
}
