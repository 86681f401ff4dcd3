//! Stand-in for `barrier` on systems without a port: both sides are full barriers. A barrier never
//! makes a system call here.

use std::sync::atomic::{Ordering, fence};

/// The barrier of the hot side.
#[inline(always)]
pub fn light() {
    // PAIR asymmetric: the hot side.
    fence(Ordering::SeqCst);
}

/// The barrier of the rare side.
pub fn heavy() {
    // PAIR asymmetric: the rare side.
    fence(Ordering::SeqCst);
}
