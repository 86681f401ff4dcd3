//! Fatal checks for operations that are not allowed with preemption off. This module never checks
//! for waits or for locks of the program: code review and a house rule do.

use crate::gmp::current;
use crate::gmp::m::M;
use crate::sys::fatal::fatal;
use gosched_fiber::arch;
use gosched_fiber::carrier::{Role, role};
use std::panic::PanicHookInfo;

/// Ends the process if the caller must not panic: a G with preemption off, or an M's own code.
/// `info` describes the panic.
pub(crate) fn check_panic(info: &PanicHookInfo<'_>) {
    let inside = if current::is_fiber() {
        // SAFETY: carried — the caller is a G of this runtime.
        (unsafe { arch::preempt_disable_count() }) > 0
    } else {
        current::is_m() && role() == Role::Carrier
    };
    if inside {
        fatal!("a panic inside the runtime, with preemption off: {info}");
    }
}

/// Ends the process if the caller must not allocate: preemption is off and the M has a P, or the
/// caller has stopped the world. A G that holds the allocator's lock may need that P, or may be
/// stopped. The allocation cache calls this function on entry, in debug builds.
pub(crate) fn check_allocation() {
    if current::has_stopped_the_world() {
        current::set_has_stopped_the_world(false);
        fatal!("the allocator was entered by a thread that has stopped the world");
    }
    if !current::is_m() && !current::is_fiber() {
        return;
    }
    // SAFETY: carried — the caller is a G of this runtime, or the thread of an M.
    if unsafe { arch::preempt_disable_count() } == 0 {
        return;
    }
    // SAFETY: carried — as above; preemption is off, so the M does not change.
    if unsafe { M::current() }.p().is_some() {
        let panicking = if std::thread::panicking() { ", by a panic" } else { "" };
        fatal!("the allocator was entered with preemption off{panicking}");
    }
}
