//! The twin of `barrier` without membarrier: both sides are full barriers.

use std::sync::atomic::{Ordering, fence};

/// The hot side.
#[inline(always)]
pub fn light() {
    // PAIR asymmetric: the hot side.
    fence(Ordering::SeqCst);
}

/// The rare side.
pub fn heavy() {
    // PAIR asymmetric: the rare side.
    fence(Ordering::SeqCst);
}
