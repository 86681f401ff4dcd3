//! Creates Ps. This module never changes how many Ps are in use: `boot::start` and `world` do.

use crate::gmp::p::{P, PStatus};
use crate::sched::state::global::{MAX_PROCS, SCHED};
use gosched_fiber::Size;
use std::sync::OnceLock;

/// Stack size of a goroutine that requests none. Set when the runtime starts.
pub(crate) static STACK_SIZE: OnceLock<Size> = OnceLock::new();

/// Creates those of the first `procs` Ps that do not exist yet. Allocates.
pub(crate) fn make_ps(procs: usize, size: Size) {
    for index in 0..procs {
        if SCHED.p(index).is_none() {
            SCHED.add_p(P::new(index as u32, size));
        }
    }
}

/// As [`make_ps`], with the stack size of the running runtime.
pub(crate) fn make_more_ps(procs: usize) {
    if let Some(&size) = STACK_SIZE.get() {
        make_ps(procs, size);
    }
}

/// Creates an idle P that is in no table. Allocates. Returns `None` if the runtime has not started.
pub(crate) fn spare_p() -> Option<&'static P> {
    let p = STACK_SIZE.get().map(|&size| P::new(MAX_PROCS as u32, size));
    p.inspect(|p| p.change_status(PStatus::Idle))
}
