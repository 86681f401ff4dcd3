//! A goroutine waits, is made ready, and lets others run.

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::{Commit, Departure, M};
use crate::gmp::reason::WaitReason;
use crate::probe;
use crate::sched::switch::boundary::{enter, leave};
use crate::sched::{switch, wake};
use crate::sys::forked;
use gosched_fiber::NoPreempt;

/// Parks the calling goroutine until it is made ready.
/// Go: gopark.
///
/// # Safety
/// - **commit**: `commit` may be called once with the G and `data`, on another stack, before this
///   returns; it keeps the rules of [`Commit`].
#[inline]
pub(crate) unsafe fn park(g: &'static G, reason: WaitReason, commit: Commit, data: *const ()) {
    forked::refuse_in_child("a wait");
    enter();
    // SAFETY: commit — promised by the caller.
    unsafe { park_in_runtime(g, reason, commit, data) };
}

/// As [`park`], for a goroutine that is inside the runtime. Returns outside.
/// Go: mcall(park_m).
///
/// # Safety
/// - **commit**: as for [`park`].
#[inline(never)]
pub(crate) unsafe fn park_in_runtime(
    g: &'static G,
    reason: WaitReason,
    commit: Commit,
    data: *const (),
) {
    // SAFETY: carried — a goroutine of this runtime, that is not moved now.
    let m = unsafe { M::current() };
    g.begin_wait(reason, data);
    switch::depart(m, g, Departure::Park { g, commit, data });
    leave();
}

/// Makes a parked goroutine runnable: next on the caller's P, or in the global queue.
/// Go: goready.
#[inline]
pub(crate) fn ready(g: &'static G) {
    if current::is_fiber() {
        enter();
        ready_in_runtime(g);
        leave();
    } else {
        // Inside `host` it could be stopped.
        // SAFETY: here — nothing below waits or switches.
        let _no_preempt = unsafe { NoPreempt::new() };
        g.make_runnable();
        switch::push_global(g);
        wake::wake_if_idle();
    }
}

/// As [`ready`], by a goroutine that is inside the runtime.
/// Go: ready.
#[inline]
pub(crate) fn ready_in_runtime(g: &'static G) {
    // SAFETY: carried — a goroutine of this runtime, that is not moved now.
    let m = unsafe { M::current() };
    g.make_runnable();
    switch::push_next(m, g);
    probe_and_wake();
}

/// To the tail of the global queue.
#[inline(never)]
pub(crate) fn yield_now(g: &'static G) {
    forked::refuse_in_child("`yield_now`");
    let m = enter();
    switch::depart_yielding(m, g);
    leave();
}

/// To the tail of the P's own queue: for the runtime's own use.
pub(crate) fn yield_locally(g: &'static G) {
    let m = enter();
    switch::depart(m, g, Departure::YieldLocally { g });
    leave();
}

/// After each submission, with preemption off.
#[inline]
pub(crate) fn probe_and_wake() {
    probe::point();
    wake::wake_if_idle();
}
