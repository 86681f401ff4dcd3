//! Starts Gs: from a G, on that G's P; from an ordinary thread, through the global queue, except
//! the main goroutine, which the main thread queues itself ([`MAIN`]). This module never allocates
//! a stack: the M that first runs a G gets one if necessary.

use crate::gmp::current;
use crate::gmp::g::{G, GInit};
use crate::gmp::record::record;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::probe::field::Place;
use crate::sched::state::global::SCHED;
use crate::sched::state::spawn_request::SpawnRequest;
use crate::sched::switch::boundary::enter;
use crate::sched::switch::stacks;
use crate::sched::switch::submit::{self, Submission};
use crate::sched::wake;
use crate::sys::forked;
use gosched_fiber::NoPreempt;
use gosched_fiber::base::atomic_ref::AtomicRef;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::sync::atomic::Ordering;

/// Starts a goroutine. Returns its G and its id.
/// Go: newproc.
#[inline]
pub(crate) fn spawn(request: SpawnRequest<'_>) -> (&'static G, u64) {
    forked::refuse_in_child("`go`");
    if !current::is_fiber() {
        return spawn_from_outside(request);
    }
    let parent = current::goroutine().map_or(0, G::id);
    loop {
        let mut inside = enter();
        let mut on = inside.on_m();
        let Some(mut p) = on.own_p() else { unreachable!("an M has a P after `enter`") };
        let Some(g) = stacks::take_free_g(p.lend()) else {
            drop(inside);
            allocate_gs();
            continue;
        };
        let id = stacks::take_id(p.lend(), g);
        init_g(g, id, parent, request);
        stacks::use_kept_stack(p.lend(), g);
        p.count_started();
        submit::push_next_on(p, g, Submission::Spawn);
        wake::wake_if_idle();
        return (g, id);
    }
}

/// Fills in a dead G for its next life and makes it runnable. The caller owns the G and queues it.
/// Go: newproc1.
#[inline]
pub(crate) fn init_g(g: &'static G, id: u64, parent: u64, request: SpawnRequest<'_>) {
    let mut details = None;
    if let Some(options) = request.options {
        details = options.details.clone();
        // SAFETY: owner — the caller has taken the dead G from a list.
        unsafe { g.frame.get() }.size = options.size;
    }
    g.init(GInit { id, parent, site: request.site, task: request.task, details });
    g.enter_group();
    g.transition(GState::Dead, GState::Runnable);
}

#[cold]
fn spawn_from_outside(request: SpawnRequest<'_>) -> (&'static G, u64) {
    let id = request.options.and_then(|options| options.id).unwrap_or_else(|| SCHED.take_ids(1));
    let for_main_m = request.options.is_some_and(|options| options.for_main_m);
    loop {
        let mut locked = NoPreemptLockGuard::new(&SCHED.lock);
        let Some(g) = locked.free.pop_front() else {
            drop(locked);
            allocate_gs();
            continue;
        };
        init_g(g, id, 0, request);
        SCHED.foreign_goroutines.fetch_add(1, Ordering::Relaxed);
        if for_main_m {
            MAIN.store(Some(g));
            return (g, id);
        }
        record(|| submit::submission(g, Submission::Spawn, Place::Global));
        locked.push(g);
        drop(locked);
        // SAFETY: here — nothing below waits or switches.
        let _no_preempt = unsafe { NoPreempt::new() };
        wake::wake_if_idle();
        return (g, id);
    }
}

/// Adds a slab of dead Gs to the global list. Allocates, so preemption must be on.
/// Go: malg, allgadd.
#[cold]
pub(crate) fn allocate_gs() {
    let mut new = slab::grow();
    let mut locked = NoPreemptLockGuard::new(&SCHED.lock);
    while let Some(g) = new.pop_front() {
        locked.free.push_front(g);
    }
}

/// The G of the main goroutine. The main thread queues it when that thread becomes an M.
pub(crate) static MAIN: AtomicRef<G> = AtomicRef::new();
