//! Prepared Gs: Gs that can be started by code that must not allocate, such as a timer or the
//! holder of a lock.
//!
//! A prepared G is dead, has a task, and is in no list. The code that prepared it owns it until it
//! is made ready like a parked G, or discarded. Until it runs, a prepared G has no stack and is not
//! counted as started. Discarding a prepared G never frees its task: the task belongs to the caller
//! again.

use crate::gmp::current;
use crate::gmp::g::{G, GInit};
use crate::sched::state::global::SCHED;
use crate::sched::state::spawn_request::SpawnRequest;
use crate::sched::switch::boundary::while_inside;
use crate::sched::switch::{spawn, stacks};
use crate::sys::forked;
use gosched_fiber::lock::NoPreemptLockGuard;

/// See [`prepare`](crate::sched::prepare).
pub(crate) fn prepare(request: SpawnRequest<'_>) -> &'static G {
    forked::refuse_in_child("a timer");
    let parent = current::goroutine().map_or(0, G::id);
    loop {
        let Some((g, id)) = take() else {
            spawn::allocate_gs();
            continue;
        };
        g.init(GInit { id, parent, site: request.site, task: request.task, details: None });
        g.set_prepared(true);
        return g;
    }
}

/// Takes a dead G without a stack, and an id for it. Returns `None` if there is no dead G.
fn take() -> Option<(&'static G, u64)> {
    if !current::is_fiber() {
        return NoPreemptLockGuard::new(&SCHED.lock)
            .free
            .pop_front()
            .map(|g| (g, SCHED.take_ids(1)));
    }
    while_inside(|mut on| {
        let mut p = on.own_p()?;
        let g = stacks::take_free_g(p.lend())?;
        stacks::give_up_kept_stack(p.lend(), g);
        Some((g, stacks::take_id(p, g)))
    })
}

/// See [`discard`](crate::sched::discard).
pub(crate) fn discard(g: &'static G) {
    g.set_prepared(false);
    g.set_group(None);
    if !current::is_fiber() {
        return NoPreemptLockGuard::new(&SCHED.lock).free.push_front(g);
    }
    while_inside(|mut on| match on.own_p() {
        Some(mut p) => stacks::put_free_g(p.caches(), g),
        None => SCHED.lock.lock().free.push_front(g),
    });
}

/// See [`begin_prepared`](crate::sched::begin_prepared).
pub(crate) fn begin_prepared(g: &'static G) {
    g.set_prepared(false);
    g.enter_group();
    while_inside(|mut on| on.own_p().map(|p| p.count_started()));
}
