//! Makes Ps.

use crate::gmp::p::P;
use crate::sched::state::global::{MAX_PROCS, SCHED};
use gosched_fiber::Size;
use std::sync::OnceLock;

/// The stack of a goroutine that asked for none.
pub(crate) static STACK_SIZE: OnceLock<Size> = OnceLock::new();

/// Makes Ps up to `procs` known, those that were never made: allocates.
pub(crate) fn make_ps(procs: usize, size: Size) {
    for index in 0..procs {
        if SCHED.p(index).is_none() {
            SCHED.add_p(P::new(index as u32, size));
        }
    }
}

/// As [`make_ps`], once the runtime has started.
pub(crate) fn make_more_ps(procs: usize) {
    if let Some(&size) = STACK_SIZE.get() {
        make_ps(procs, size);
    }
}

/// A P that is in no table: allocates.
pub(crate) fn spare_p() -> Option<&'static P> {
    STACK_SIZE.get().map(|&size| P::new(MAX_PROCS as u32, size))
}
