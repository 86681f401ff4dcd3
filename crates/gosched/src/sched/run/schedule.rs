//! The main loop of an M: finds a G, runs it, and repeats. The loop runs on g0, with preemption
//! off. This module never searches the queues: `find` does.

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::state::GState;
use crate::gmp::token::{OnM, OwnedP};
use crate::probe;
use crate::probe::event::EventKind;
use crate::sched::run::{find, locked_m};
use crate::sched::state::counts;
use crate::sched::state::global::SCHED;
use crate::sched::switch;
use crate::sched::switch::{preempt, stacks};
use crate::sched::wake::{self, hand_off, refusal};
use crate::sys::fatal::fatal;
use crate::sys::thread_status;
use gosched_fiber::arch::{self, SavedContext};
use gosched_fiber::carrier::MASK_CHANGED;
use std::ptr;
use std::sync::atomic::Ordering;

/// Runs an M, from the start of its thread to its end. The M may already have a P.
/// Go: mstart1, and the loop of schedule.
pub(crate) fn run_m(m: &'static M) {
    // SAFETY: alive — Ms are never freed.
    let attached = unsafe { m.carrier.attach() };
    if let Err(why) = attached {
        // Memory may become available later. Any other error would occur on every thread.
        let is_memory = matches!(why.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN));
        if m.is_main() || !is_memory {
            fatal!(
                "a thread cannot run goroutines: {why}; a seccomp filter may be blocking a system call that the runtime needs"
            );
        }
        refusal::handle_refusal(format_args!(
            "no memory for a thread that runs goroutines ({why})"
        ));
        return retire_m(m);
    }
    preempt::init_thread(m);
    current::set_is_m(true);
    // SAFETY: owner — this is the M's own thread, before its first switch.
    *unsafe { m.g0.get() } = SavedContext::empty(m.carrier.thread_pointer());
    // SAFETY: carried — attached above.
    unsafe { arch::preempt_disable() };
    // SAFETY: own — this is the M's own thread; only — the one token of g0.
    let mut on = unsafe { OnM::of(m) };
    // From here on, other threads can signal and inspect this thread.
    m.set_tid(thread_status::id());
    if probe::is_recording() {
        m.record(EventKind::StartThread {});
    }
    while let Some(g) = next(on.lend()) {
        run(on.lend(), g);
        if m.is_dying() {
            break;
        }
        if m.carrier.slow_path_flags() & MASK_CHANGED != 0 && m.locked_g().is_none() {
            m.carrier.restore_mask();
        }
    }
    end(on);
    if probe::is_recording() {
        m.record(EventKind::EndThread {});
    }
    // SAFETY: carried, counted — attached, and preemption turned off, above.
    unsafe { arch::preempt_enable() };
    current::set_is_m(false);
    // SAFETY: attached — by `attach` above, on this thread.
    unsafe { m.carrier.detach() };
    retire_m(m);
}

/// Returns the G to run: the G that the M is locked to, the G that was already picked, or the next
/// G that is found. Returns `None` if the M must exit.
fn next(mut on: OnM<'_>) -> Option<&'static G> {
    if let Some(g) = on.locked_g() {
        locked_m::stop_locked_m(on.lend());
        return Some(g);
    }
    let g = match on.take_picked() {
        Some(g) => g,
        None => find::find_runnable(on.lend())?,
    };
    if on.spinning.is_spinning() {
        wake::stop_spinning(on.m());
    }
    Some(g)
}

/// Runs `g` until the M is back on g0. If `g` is pinned to another M, hands the P to that M
/// instead.
/// Go: schedule, its end.
fn run(mut on: OnM<'_>, g: &'static G) {
    if let Some(owner) = g.pinned.get().filter(|owner| !ptr::eq(*owner, on.m())) {
        locked_m::start_locked_m(on, g, owner);
        return;
    }
    if on.p().is_none() || g.state() != GState::Runnable {
        fatal!(
            "M{} cannot run goroutine {} ({}): the M has no P, or the goroutine is not runnable",
            on.id,
            g.id(),
            g.state().name()
        );
    }
    if stacks::ensure_stack(on.lend(), g) {
        switch::execute(on, g);
    }
}

/// Hands off the P of an M that exits because the G that it was locked to has exited. An M that
/// exits for lack of work has no P.
fn end(mut on: OnM<'_>) {
    if let Some((p, _)) = on.own_p().map(OwnedP::release) {
        SCHED.lock.lock().ms -= 1;
        hand_off::hand_off(p);
    }
}

/// Makes the record of an M whose thread exits available for a new M.
/// Go: mexit.
fn retire_m(m: &'static M) {
    m.alive.store(false, Ordering::Relaxed);
    counts::record_ended_m(m);
    m.set_dying(false);
    m.set_main(false);
    SCHED.lock.lock().dead_ms.push_front(m);
}
