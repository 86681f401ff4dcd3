//! Polling for I/O: which thread polls, and where the Gs go that are ready.
//!
//! - An M polls if it finds a G neither in its own queue nor in the global queue, before it steals
//!   (as in Go).
//! - In every 61st slice, an M polls although it has work, because its own queue may never become
//!   empty.
//! - If no P is busy, one M sleeps *in* the poller: the last M to become idle, or an M that is
//!   woken for this. While a P is busy, its M will poll soon. A second M in the poller would only
//!   be woken, on another CPU, for events that the busy M is about to find. A P that has not passed
//!   the scheduler between two ticks of sysmon does not count as busy.
//! - If all Ps are busy and none has passed the scheduler for a while, sysmon sleeps in the poller,
//!   and a running G makes room for the Gs that sysmon finds (`monitor::retake`). If Ps do pass the
//!   scheduler, but no M has polled for a millisecond, sysmon polls.
//!
//! Gs that are ready go to the queue of the polling M's P, or to the tail of the global queue if
//! that is long. If the M has no P, they go before all other Gs in the global queue. So do Gs that
//! sysmon finds while no P passes the scheduler.
//!
//! `protocol::io_waiters` describes why no waiter is missed.
//!
//! This module never runs a G that is ready, and never decides which M gets the role of poller:
//! `state::poller_role` does.

use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::record::record;
use crate::gmp::token::{OnM, OwnedP};
use crate::probe::field::Place;
use crate::protocol::attention::AttentionFlag;
use crate::protocol::poll_role;
use crate::sched::state::global::{self, Locked, SCHED};
use crate::sched::state::poller_role;
use crate::sched::switch::submit::{self, Submission};
use crate::sched::threads::wait;
use crate::sched::{events, wake};
use crate::sys::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many times an M with a P has polled.
pub(crate) static POLL_COUNT: AtomicU64 = AtomicU64::new(0);

/// Polls on g0 of an M with a P, without waiting. Returns the first G that is ready, and puts the
/// others into the P's queue.
/// Go: netpoll and injectglist in findRunnable.
pub(crate) fn poll_for_g(mut p: OwnedP<'_>) -> Option<&'static G> {
    let mut ready = GList::new();
    POLL_COUNT.fetch_add(1, Ordering::Relaxed);
    events::poll_ready(&mut ready, Some(Duration::ZERO));
    let first = pop_goroutine(&mut ready);
    if let Some(first) = first {
        record(|| submit::submission(first, Submission::Io, Place::Nowhere));
    }
    if inject_local(p.on_m(), ready) {
        wake::wake_if_idle();
    }
    first
}

/// A global queue with more Gs than this counts as long: many Gs have become runnable at once.
pub(crate) const LONG_GLOBAL_QUEUE: usize = 256;

/// How many events an M takes at most while its queue is not empty. It runs more Gs than that until
/// it polls again, so the queue does not overflow.
pub(crate) const BUSY_POLL_BATCH: usize = global::GLOBAL_QUEUE_INTERVAL_TICKS as usize / 2;

/// Polls on g0 of an M with a P, without waiting, although there is work. If the global queue is
/// long, the Gs that are ready go to its tail. Otherwise a limited number of them goes to the P's
/// queue.
pub(crate) fn poll_when_busy(mut p: OwnedP<'_>) {
    let mut ready = GList::new();
    POLL_COUNT.fetch_add(1, Ordering::Relaxed);
    if SCHED.queued.load(Ordering::Relaxed) > LONG_GLOBAL_QUEUE {
        events::poll_ready(&mut ready, Some(Duration::ZERO));
        return inject_last(ready, Submission::Io);
    }
    events::poll_ready_up_to(BUSY_POLL_BATCH, &mut ready, Some(Duration::ZERO));
    inject_ready(p.on_m(), ready);
}

/// Returns whether it is time to poll although there is work. Returns false while an interrupted G
/// is queued, because that G would run before the Gs that are found.
#[inline]
pub(crate) fn is_due(p: OwnedP<'_>) -> bool {
    p.tick().is_multiple_of(global::GLOBAL_QUEUE_INTERVAL_TICKS)
        && poller_role::should_poll()
        && !SCHED.attention.is_set(AttentionFlag::Interrupted)
}

/// Puts Gs that are ready into the queue of the M's P, or before all other Gs in the global queue
/// if the M has no P. Starts a spinner if the P's queue holds more than one G.
/// Go: injectglist.
pub(crate) fn inject_ready(on: OnM<'_>, ready: GList) {
    match on.p() {
        Some(p) => {
            inject_local(on, ready);
            if p.queue_len() > 1 {
                wake::wake_if_idle();
            }
        }
        None => inject_first(ready),
    }
}

/// Puts Gs that are ready into the queue of the M's P. Returns whether there was at least one.
fn inject_local(mut on: OnM<'_>, mut ready: GList) -> bool {
    let mut pushed = false;
    while let Some(g) = pop_goroutine(&mut ready) {
        submit::push(on.lend(), g, Submission::Io);
        pushed = true;
    }
    pushed
}

/// Takes the next goroutine out of `ready` and makes it runnable. Threads that come before it in
/// the list are woken.
fn pop_goroutine(ready: &mut GList) -> Option<&'static G> {
    loop {
        let g = ready.pop_front()?;
        if !g.is_thread() {
            g.make_runnable();
            return Some(g);
        }
        wait::ready(g);
    }
}

/// Puts Gs that are ready before all other Gs in the global queue. Called by a thread without a P.
pub(crate) fn inject_first(ready: GList) {
    inject_global(ready, |locked, g| {
        record(|| submit::submission(g, Submission::Io, Place::GlobalFirst));
        locked.push_interrupted(g);
        poller_role::IO_UNCLAIMED.store(true, Ordering::Relaxed);
    });
}

/// Puts Gs that are ready at the tail of the global queue. A thread without a P may call this.
/// `why` is recorded.
pub(crate) fn inject_last(ready: GList, why: Submission) {
    inject_global(ready, |locked, g| {
        record(|| submit::submission(g, why, Place::Global));
        locked.push(g);
    });
}

/// Puts Gs that are ready into the global queue with `push`, and starts a spinner if needed.
fn inject_global(mut ready: GList, push: impl Fn(&mut Locked, &'static G)) {
    let Some(first) = pop_goroutine(&mut ready) else { return };
    let mut locked = SCHED.lock.lock();
    push(&mut locked, first);
    while let Some(g) = pop_goroutine(&mut ready) {
        push(&mut locked, g);
    }
    drop(locked);
    wake::wake_if_idle();
}

/// Sleeps in the poller until the M is woken, a G is ready, or `timeout` has passed. The M holds
/// the role of poller. Returns whether the M was woken.
pub(crate) fn sleep(on: OnM<'_>, timeout: Option<Duration>, ready: &mut GList) -> bool {
    let end = timeout.map(|timeout| clock::real_now().saturating_add(clock::nanos(timeout)));
    poll_role::sleep(&on.note, || {
        let left = end.map(|end| Duration::from_nanos(end.saturating_sub(clock::real_now())));
        if !ready.is_empty() || left.is_some_and(|left| left.is_zero()) {
            return false;
        }
        events::poll_ready(ready, left);
        true
    })
}

/// Wakes an M if no M polls or will poll. Called after a waiter for I/O has been counted.
pub(crate) fn ensure_poller() {
    if poller_role::is_poller_wanted_after_count() {
        wake::wake_if_idle();
    }
}
