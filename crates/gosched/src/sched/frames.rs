//! What `viewer` tells of a goroutine, on every system.

use crate::gmp::reason::WaitReason;
use crate::gmp::state::GState;

/// Whether calls that nobody marked may be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    /// Only where they go on by themselves.
    Polite,
    /// The process ends anyway.
    Rude,
}

/// An address in each frame, from the innermost on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Frames {
    pub(crate) first: Vec<usize>,
    /// How many are left out after those.
    pub(crate) elided: usize,
    pub(crate) last: Vec<usize>,
    /// There are more, but it is not known which.
    pub(crate) is_cut: bool,
}

/// What a goroutine did, besides its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) state: GState,
    /// Why it waited, and since when, if it did.
    pub(crate) reason: WaitReason,
    pub(crate) since: u64,
}
