//! Parks Gs, makes them ready, and lets them yield. This module never publishes that a G waits:
//! `publish_departure` does, after the switch.

use crate::gmp::commit::Commit;
use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::Departure;
use crate::gmp::token::OnM;
use crate::probe::wait_reason::WaitReason;
use crate::sched::switch::boundary::{InRuntime, enter, while_inside};
use crate::sched::switch::submit::{self, Submission};
use crate::sched::{switch, wake};
use crate::sys::fatal::fatal;
use crate::sys::forked;
use gosched_fiber::NoPreempt;

/// Parks the calling G until it is made ready.
/// Go: gopark.
#[inline]
pub(crate) fn park(g: &'static G, reason: WaitReason, commit: Commit) {
    forked::refuse_in_child("a wait");
    park_in_runtime(enter(), g, reason, commit);
}

/// Like [`park`], for a G that is inside the runtime. The G is outside the runtime when this
/// function returns.
/// Go: mcall(park_m).
#[inline(never)]
pub(crate) fn park_in_runtime(
    mut inside: InRuntime,
    g: &'static G,
    reason: WaitReason,
    commit: Commit,
) {
    if forked::is_child() {
        // No other goroutine may run here, and no thread of the parent can end the wait.
        fatal!(
            "goroutine {} waits in a forked child, for a lock that was held in the parent",
            g.id()
        );
    }
    g.begin_wait(reason, commit.data());
    switch::depart(inside.may_move(), g, Departure::Park { g, commit });
}

/// Makes a parked G runnable. The G becomes the next to run on the caller's P, or goes to the tail
/// of the global queue if the caller is not a goroutine.
/// Go: goready.
#[inline]
pub(crate) fn ready(g: &'static G) {
    if current::is_fiber() {
        while_inside(|mut on| ready_in_runtime(on.on_m(), g));
    } else {
        // Inside `host` the caller runs on an M's thread and could be preempted.
        // SAFETY: here — nothing below waits or switches.
        let _no_preempt = unsafe { NoPreempt::new() };
        g.make_runnable();
        submit::push_global(g, Submission::Ready);
        wake::wake_if_idle();
    }
}

/// Like [`ready`], for a caller that is inside the runtime.
/// Go: ready.
#[inline]
pub(crate) fn ready_in_runtime(on: OnM<'_>, g: &'static G) {
    g.make_runnable();
    submit::push_next(on, g, Submission::Ready);
    wake::wake_if_idle();
}

/// Moves the calling G to the tail of the global queue and runs the next G.
#[inline(never)]
pub(crate) fn yield_now(g: &'static G) {
    forked::refuse_in_child("`yield_now`");
    while_inside(|on| switch::depart_yielding(on, g));
}

/// Moves the calling G to the tail of its P's own queue and runs the next G. For use by the
/// runtime. Does nothing in a forked child, which runs no other G.
pub(crate) fn yield_locally(g: &'static G) {
    if forked::is_child() {
        return;
    }
    while_inside(|on| switch::depart(on, g, Departure::YieldLocally { g }));
}
