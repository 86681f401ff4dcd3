//! Prepared Gs: Gs that can be started by code that must not allocate, such as a timer or the
//! holder of a lock.
//!
//! A prepared G is dead, has a task, and is in no list. The code that prepared it owns it until it
//! is made ready like a parked G, or discarded. Until it runs, a prepared G has no stack and is not
//! counted as started.

use crate::gmp::current;
use crate::gmp::g::{G, GInit};
use crate::sched::state::global::SCHED;
use crate::sched::state::spawn_request::SpawnRequest;
use crate::sched::switch::boundary::{enter, leave};
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
    let p = enter().p();
    let taken = p.and_then(|p| {
        let g = stacks::take_free_g(p)?;
        stacks::give_up_kept_stack(p, g);
        Some((g, stacks::take_id(p, g)))
    });
    leave();
    taken
}

/// See [`discard`](crate::sched::discard).
pub(crate) fn discard(g: &'static G) {
    g.set_prepared(false);
    g.set_group(None);
    if !current::is_fiber() {
        return NoPreemptLockGuard::new(&SCHED.lock).free.push_front(g);
    }
    match enter().p() {
        // SAFETY: owner — the caller has the P.
        Some(p) => stacks::put_free_g(unsafe { p.caches.get() }, g),
        None => SCHED.lock.lock().free.push_front(g),
    }
    leave();
}

/// See [`begin_prepared`](crate::sched::begin_prepared).
pub(crate) fn begin_prepared(g: &'static G) {
    g.set_prepared(false);
    g.enter_group();
    if let Some(p) = enter().p() {
        p.count_started();
    }
    leave();
}
