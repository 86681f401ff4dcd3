//! Functions that waiting threads call from the layer below, and that depend on the backend. Code
//! here never fires a timer: it wakes a thread that does.

use crate::gmp::current;
use crate::sched::run::deadlock;
use crate::sched::state::backend::{Backend, chosen};
use crate::sched::switch::boundary::enter;
use crate::sched::threads::activity::Upcalls;
use crate::sched::threads::timer_heap;
use crate::sched::wake;
use crate::sys::clock;
use gosched_fiber::NoPreempt;

pub(crate) static UPCALLS: Upcalls =
    Upcalls { check_for_deadlock: deadlock::check_for_deadlock, recheck_virtual_time };

fn recheck_virtual_time() {
    if !clock::is_virtual() {
        return;
    }
    match chosen() {
        Some(Backend::MultiThread) => recheck_timers(),
        Some(Backend::Threads) | None => timer_heap::wake(),
    }
}

/// Wakes an M if a P is idle and no M spins. The M checks the timers before it sleeps again.
fn recheck_timers() {
    let inside = current::is_fiber().then(enter);
    // Code inside `host` could be preempted here.
    // SAFETY: here — nothing below waits or switches.
    let no_preempt = unsafe { NoPreempt::new() };
    wake::wake_if_idle();
    drop(no_preempt);
    drop(inside);
}
