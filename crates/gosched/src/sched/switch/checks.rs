//! Fatal where code does what it must not do with preemption off.

use crate::gmp::current;
use crate::gmp::m::M;
use crate::sys::fatal::fatal;
use gosched_fiber::arch;
use gosched_fiber::carrier::{Role, role};

/// A panic where none may be is the end.
pub(crate) fn check_panic() {
    let inside = if current::is_fiber() {
        // SAFETY: carried — a goroutine of this runtime.
        (unsafe { arch::preempt_disable_count() }) > 0
    } else {
        current::is_m() && role() == Role::Carrier
    };
    if inside {
        fatal!("a panic with preemption off");
    }
}

/// What the allocation cache calls when it is entered, in debug builds: fatal where nothing may be
/// allocated, that is with preemption off and a P in hand, and while the caller has stopped the world.
/// Whoever holds the allocator's lock may need that P, or is stopped.
pub(crate) fn check_allocation() {
    if current::has_stopped_the_world() {
        current::set_has_stopped_the_world(false);
        fatal!("the allocator was entered by a thread that has stopped the world");
    }
    if !current::is_m() && !current::is_fiber() {
        return;
    }
    // SAFETY: carried — a goroutine of this runtime, or the thread of an M.
    if unsafe { arch::preempt_disable_count() } == 0 {
        return;
    }
    // SAFETY: carried — as above, and it is not moved now.
    if unsafe { M::current() }.p().is_some() {
        fatal!("the allocator was entered with preemption off");
    }
}
