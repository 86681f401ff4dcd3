//! Replaces `upcalls` on systems without a port, which have no M:N scheduler. This version never
//! checks for a deadlock: `threads::wait` does.

use crate::sched::threads::activity::Upcalls;
use crate::sched::threads::timer_heap;
use crate::sys::clock;

pub(crate) static UPCALLS: Upcalls = Upcalls { check_for_deadlock: || (), recheck_virtual_time };

fn recheck_virtual_time() {
    if clock::is_virtual() {
        timer_heap::wake();
    }
}
