//! The frames of a goroutine: see `snapshot` for how they are had.

pub(crate) use super::frames::{Frames, Look, Manners};

use super::snapshot::Snapshot;
use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::state::GState;
use crate::sys::clock;
use gosched_context::unwind::{End, Walker};
use std::collections::VecDeque;
use std::path::Path;

/// Looks at one goroutine after the other.
#[derive(Debug)]
pub(crate) struct Viewer {
    snapshot: Snapshot,
    walker: Walker,
}

/// Frames at each end of a long stack, as Go shows them.
const SHOWN: usize = 50;

/// The goroutine that calls, inside `host` too.
pub(crate) fn own() -> Option<&'static G> {
    current::goroutine().or_else(|| M::of_this_thread().and_then(M::curg))
}

impl Viewer {
    pub(crate) fn new(manners: Manners) -> Viewer {
        Viewer { snapshot: Snapshot::new(manners), walker: Walker::new() }
    }

    /// What `g` does: its state, and its frames. `None`: it is dead.
    ///
    /// One whose thread is blocked in a call is in a call, whether it was marked or not.
    pub(crate) fn look_at(&mut self, g: &'static G, frames: &mut Frames) -> Option<Look> {
        let state = match own().is_some_and(|own| std::ptr::eq(own, g)) {
            true => {
                self.snapshot.take_own();
                GState::Running
            }
            false => self.snapshot.take(g)?.state(),
        };
        self.walk(frames);
        let (reason, since) = self.snapshot.wait();
        Some(match self.snapshot.is_blocked() {
            true => Look { state: GState::Syscall, reason, since: clock::real_now() },
            false => Look { state, reason, since },
        })
    }

    fn walk(&mut self, frames: &mut Frames) {
        let Frames { first, elided, last, is_cut } = frames;
        first.clear();
        *elided = 0;
        let mut end = VecDeque::with_capacity(SHOWN);
        let how = self.snapshot.walk(&mut self.walker, |address| {
            if first.len() < SHOWN {
                first.push(address);
                return true;
            }
            if end.len() == SHOWN {
                end.pop_front();
                *elided += 1;
            }
            end.push_back(address);
            true
        });
        *last = end.into();
        *is_cut = how == End::Broken;
    }

    /// Where the function begins that an address is in, which was told as one of a frame.
    pub(crate) fn function(&self, address: usize) -> Option<usize> {
        self.walker.function(address)
    }

    /// The file that has this code, and how far from its beginning it is; an empty path is the program's.
    pub(crate) fn module(&self, address: usize) -> Option<(&Path, usize)> {
        self.walker.module(address)
    }
}
