//! A goroutine is started: by another one on its P, or by a thread through the global queue.

use crate::gmp::current;
use crate::gmp::g::{Birth, G};
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sched::state::global::SCHED;
use crate::sched::state::spawn_request::Order;
use crate::sched::switch::boundary::{enter, leave};
use crate::sched::switch::park::probe_and_wake;
use crate::sched::switch::{self, stacks};
use crate::sched::wake;
use crate::sys::forked;
use gosched_context::Still;
use gosched_context::lock::Guarded;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Starts a goroutine. Returns its id.
#[inline]
pub(crate) fn spawn(order: Order<'_>) -> (&'static G, u64) {
    forked::refuse_in_child("`go`");
    if !current::is_fiber() {
        return spawn_from_outside(order);
    }
    let parent = current::goroutine().map_or(0, G::id);
    loop {
        let m = enter();
        let Some(p) = m.p() else { unreachable!("`enter` found one") };
        let Some(g) = stacks::take_dead(p) else {
            leave();
            more_gs();
            continue;
        };
        let id = stacks::take_id(p, g);
        begin(g, id, parent, order);
        stacks::use_kept_stack(p, g);
        p.count_started();
        switch::push_next(m, g);
        probe_and_wake();
        leave();
        return (g, id);
    }
}

#[inline]
pub(crate) fn begin(g: &'static G, id: u64, parent: u64, order: Order<'_>) {
    let mut details = None;
    if let Some(wishes) = order.wishes {
        details = wishes.details.clone();
        // SAFETY: owner — a dead G that was just taken.
        unsafe { g.frame.get() }.size = wishes.size;
    }
    g.begin(Birth { id, parent, site: order.site, task: order.task, details });
    g.enter_group();
    g.transition(GState::Dead, GState::Runnable);
}

#[cold]
fn spawn_from_outside(order: Order<'_>) -> (&'static G, u64) {
    let id = order.wishes.and_then(|wishes| wishes.id).unwrap_or_else(|| SCHED.take_ids(1));
    let for_main_m = order.wishes.is_some_and(|wishes| wishes.for_main_m);
    loop {
        let mut locked = Guarded::new(&SCHED.lock);
        let Some(g) = locked.free.pop_front() else {
            drop(locked);
            more_gs();
            continue;
        };
        begin(g, id, 0, order);
        SCHED.foreign_goroutines.fetch_add(1, Ordering::Relaxed);
        if for_main_m {
            MAIN.store(ptr::from_ref(g).cast_mut(), Ordering::Relaxed);
            return (g, id);
        }
        locked.push(g);
        drop(locked);
        // SAFETY: here — nothing below waits or switches.
        let _still = unsafe { Still::new() };
        wake::wake_if_idle();
        return (g, id);
    }
}

/// Memory for Gs: allocates, with preemption on.
#[cold]
pub(crate) fn more_gs() {
    let mut new = slab::grow();
    let mut locked = Guarded::new(&SCHED.lock);
    while let Some(g) = new.pop_front() {
        locked.free.push_front(g);
    }
}

/// The main goroutine, until the main thread takes it.
pub(crate) static MAIN: AtomicPtr<G> = AtomicPtr::new(ptr::null_mut());
