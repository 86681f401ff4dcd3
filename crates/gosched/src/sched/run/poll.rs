//! Who polls, and what becomes of goroutines that are ready then.
//!
//! - An M that finds no G in its own queue nor in the global one looks (Go's place), before it steals.
//! - Every 61st time an M looks first: its own goroutines may keep it busy for ever.
//! - When no P is busy, one M sleeps *in* the poller: the one that comes last, or is woken for that. While a P
//!   is busy its M will look soon: somebody in the poller would only wake for what that M is about to find,
//!   on another CPU. Unless it is seen not to pass the scheduler: then it does not count as busy.
//! - Where all Ps are busy and none has passed the scheduler for a while, sysmon sleeps in the poller, and
//!   somebody makes room for what it finds (`monitor::retake`). Where they do pass, but nobody has looked for a
//!   millisecond, it looks.
//!
//! Those who are ready go to the queue of the M that looked. Where there is no P, and those who have one do
//! not pass, they go before all others that wait.
//!
//! Who waits, on a thread that is no M: 1. counts itself; 2. if nobody will look and nobody is in the poller,
//! wakes an M. An M without work: 1. its P is idle; 2. heavy barrier; 3. looks whether anybody waits. So one
//! of them sees the other. (A goroutine that waits leaves an M with a P behind, which comes to its own step.)

use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::gmp::poll_role;
use crate::sched::state::global::{self, INTERRUPTED, Locked, SCHED};
use crate::sched::state::poller_role;
use crate::sched::threads::wait;
use crate::sched::{events, switch, wake};
use crate::sys::{barrier, clock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often somebody has looked.
pub(crate) static POLL_COUNT: AtomicU64 = AtomicU64::new(0);

/// Looks, on g0 of an M with a P: the first of those who are ready; the others are in its queue.
/// Go: netpoll and injectglist in findRunnable.
pub(crate) fn poll_for_g(m: &'static M) -> Option<&'static G> {
    let mut ready = GList::new();
    POLL_COUNT.fetch_add(1, Ordering::Relaxed);
    events::poll_ready(&mut ready, Some(Duration::ZERO));
    let first = pop_goroutine(&mut ready);
    if inject_local(m, ready) {
        wake::wake_if_idle();
    }
    first
}

/// More than this wait in the global queue only where many have become runnable at once.
pub(crate) const LONG_GLOBAL_QUEUE: usize = 256;

/// So many go to a queue that is not empty: fewer than run until the next look, so it does not overflow.
pub(crate) const BUSY_POLL_BATCH: usize = global::GLOBAL_QUEUE_INTERVAL_TICKS as usize / 2;

/// Looks, on g0 of an M with a P, although there is work: those who are ready go behind all others if many wait
/// in the global queue already; else some of them to the queue of the P.
pub(crate) fn poll_when_busy(m: &'static M) {
    let mut ready = GList::new();
    POLL_COUNT.fetch_add(1, Ordering::Relaxed);
    if SCHED.queued.load(Ordering::Relaxed) > LONG_GLOBAL_QUEUE {
        events::poll_ready(&mut ready, Some(Duration::ZERO));
        return inject_last(ready);
    }
    events::poll_ready_up_to(BUSY_POLL_BATCH, &mut ready, Some(Duration::ZERO));
    inject_ready(m, ready);
}

/// Whether it is time to look although there is work. Not where one waits that was interrupted: it would go
/// before those who are found.
#[inline]
pub(crate) fn is_due(p: &'static P) -> bool {
    p.tick().is_multiple_of(global::GLOBAL_QUEUE_INTERVAL_TICKS)
        && poller_role::should_poll()
        && SCHED.attention() & INTERRUPTED == 0
}

/// To the queue of the M's P; or before all others, if it has none. Others are told if there is more than the
/// M itself runs next.
/// Go: injectglist.
pub(crate) fn inject_ready(m: &'static M, ready: GList) {
    match m.p() {
        Some(p) => {
            inject_local(m, ready);
            if p.queue.len() > 1 {
                wake::wake_if_idle();
            }
        }
        None => inject_first(ready),
    }
}

/// To the queue of the M's P. False: there was none.
fn inject_local(m: &'static M, mut ready: GList) -> bool {
    let mut pushed = false;
    while let Some(g) = pop_goroutine(&mut ready) {
        switch::push(m, g);
        pushed = true;
    }
    pushed
}

/// The next goroutine, which is runnable from here on; threads among them go on at once.
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

/// Those who are ready, before all others, by one who has no P.
pub(crate) fn inject_first(ready: GList) {
    inject_global(ready, |locked, g| {
        locked.push_interrupted(g);
        poller_role::IO_UNCLAIMED.store(true, Ordering::Relaxed);
    });
}

/// Those who are ready, behind all others. By threads without a P too.
pub(crate) fn inject_last(ready: GList) {
    inject_global(ready, Locked::push);
}

/// To the global queue.
fn inject_global(mut ready: GList, push: fn(&mut Locked, &'static G)) {
    let Some(first) = pop_goroutine(&mut ready) else { return };
    let mut locked = SCHED.lock.lock();
    push(&mut locked, first);
    while let Some(g) = pop_goroutine(&mut ready) {
        push(&mut locked, g);
    }
    drop(locked);
    wake::wake_if_idle();
}

/// Sleeps in the poller, as the holder of the role, until the M is woken, goroutines are ready, or `timeout` is
/// over. Returns whether the M was woken.
pub(crate) fn sleep(m: &'static M, timeout: Option<Duration>, ready: &mut GList) -> bool {
    let end = timeout.map(|timeout| clock::real_now().saturating_add(clock::nanos(timeout)));
    poll_role::sleep(&m.note, || {
        let left = end.map(|end| Duration::from_nanos(end.saturating_sub(clock::real_now())));
        if !ready.is_empty() || left.is_some_and(|left| left.is_zero()) {
            return false;
        }
        events::poll_ready(ready, left);
        true
    })
}

/// Somebody waits for I/O from here on.
pub(crate) fn ensure_poller() {
    barrier::light();
    if poller_role::is_poller_wanted() {
        wake::wake_if_idle();
    }
}
