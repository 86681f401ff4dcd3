//! A P changes hands: to a woken M, to the M that a goroutine is locked to, away from one that is
//! blocked.
//!
//! A P in flight belongs to its receiver alone: the P is in no list, and its status is idle. Sysmon looks after Ps
//! that are in flight for long (`in_flight`).

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::p::{P, PStatus};
use crate::gmp::state::GState;
use crate::sched::state::global::{CROWDED, Locked, SCHED};
use crate::sched::state::{poller_role, stopping, thread_requests, timekeeper};
use crate::sched::switch::FAIRNESS;
use crate::sched::{deadlock, spawner, wake};
use crate::sys::barrier;
use crate::sys::fatal::fatal;
use gosched_context::lock::Locked as Guard;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Gives the P to a sleeping M, or to the next one the spawner makes. The caller owns the P; where
/// the M is to spin, it is counted already.
pub(crate) fn give_to_an_m(mut locked: Guard<'_, Locked>, p: &'static P, spinning: bool) {
    p.set_status(PStatus::Idle);
    match locked.pop_idle_m() {
        Some(m) => {
            let stock = locked.idle_ms.len();
            drop(locked);
            m.spinning.store(spinning, Ordering::Relaxed);
            m.hand_p(p, poller_role::wake_m);
            if stock == 0 {
                thread_requests::ask();
            }
        }
        None if thread_requests::is_refused() => {
            spawner::put_aside(&mut locked, p, spinning);
            serve_locked_ms(&mut locked);
        }
        None => {
            p.for_spinner.store(spinning, Ordering::Relaxed);
            locked.orphans.push(p);
            drop(locked);
            thread_requests::ask();
        }
    }
}

/// What an M that has no P any more leaves behind. The caller owns the P.
pub(crate) fn hand_off(p: &'static P) {
    hand_off_locked(SCHED.lock.lock(), p);
}

/// As [`hand_off`], by a holder of the lock.
pub(crate) fn hand_off_locked(mut locked: Guard<'_, Locked>, p: &'static P) {
    if stopping::is_stopping() {
        stopping::count_stopped(&mut locked, p);
        return;
    }
    if let Some(owner) = next_owner(&mut locked, p) {
        drop(locked);
        return give(owner, p);
    }
    if !p.queue.is_empty() || !locked.queue.is_empty() {
        return give_to_an_m(locked, p, false);
    }
    locked.push_idle_p(p);
    drop(locked);
    barrier::heavy();
    if wake::is_somebody_wanted() {
        wake::wake();
    }
}

/// The next one to run with `p` may be an M's own: no other M is needed to bring it the P. That one, and its
/// goroutine is in no queue any more.
fn next_owner(locked: &mut Locked, p: &'static P) -> Option<&'static M> {
    // Somebody must look at the timers.
    let due = timekeeper::are_due();
    if !due && !p.tick().is_multiple_of(FAIRNESS) && SCHED.attention() & CROWDED != 0 {
        let first = locked.pop_first();
        if let Some(owner) = first.and_then(owner_of) {
            return Some(owner);
        }
        // Any M can run it.
        first.inspect(|g| locked.push_interrupted(g));
    }
    let front = locked.queue.front().filter(|_| p.queue.is_empty() && !due);
    if let Some(owner) = front.and_then(owner_of) {
        locked.pop();
        return Some(owner);
    }
    if !locked.idle_ms.is_empty() {
        return None;
    }
    // Rather than wait for a thread; there should be one the next time.
    thread_requests::ask();
    locked.pop_pinned().and_then(owner_of)
}

/// Gives Ps that wait for a thread to Ms that were stopped with their goroutines: making one may take a lock
/// that one of those holds. By the watcher.
pub(crate) fn rescue_orphans() {
    let mut locked = SCHED.lock.lock();
    while !locked.orphans.is_empty() && !stopping::is_stopping() {
        let Some(owner) = locked.pop_pinned().and_then(owner_of) else { return };
        let Some(p) = locked.orphans.pop() else { return };
        if p.for_spinner.load(Ordering::Relaxed) {
            SCHED.spinning.fetch_sub(1, Ordering::Relaxed);
        }
        give(owner, p);
    }
}

/// On g0 of an M that is locked to a goroutine: gives the P away and sleeps until the goroutine can
/// run. Returns with a P.
pub(crate) fn stop_locked_m(m: &'static M) {
    if m.spinning.load(Ordering::Relaxed) {
        wake::stop_spinning(m);
    }
    SCHED.lock.lock().locked_ms += 1;
    if let Some(p) = m.release_p() {
        hand_off(p);
    }
    let last = deadlock::is_possible(&SCHED.lock.lock());
    if !(last && deadlock::sleep_as_the_last(m)) {
        sleep_perhaps_for_long(m);
    }
    SCHED.lock.lock().locked_ms -= 1;
    take_given_p(m);
}

/// Sleeps until it is woken. After a while, what memory the M keeps is everybody's.
fn sleep_perhaps_for_long(m: &'static M) {
    if !m.sleep(Some(LONG)) {
        gosched_alloc::spill();
        m.sleep(None);
    }
}

/// Sleep is not long before that.
const LONG: Duration = Duration::from_millis(500);

/// To the M that sleeps until it can run the goroutine it is locked to; which is in no queue any more.
fn give(owner: &'static M, p: &'static P) {
    owner.hand_p(p, poller_role::wake_m);
}

/// Where no thread is to be had: idle Ps go straight to the Ms whose goroutines can run. No other M
/// may be left to bring them.
pub(crate) fn serve_locked_ms(locked: &mut Locked) {
    while locked.idle_ps.iter().next().is_some() {
        let Some(g) = locked.queue.take_pinned() else { break };
        locked.tell_length();
        if let (Some(owner), Some(p)) = (owner_of(g), locked.pop_idle_p()) {
            give(owner, p);
        }
    }
}

/// The P that the waker gave.
pub(crate) fn take_given_p(m: &'static M) {
    match m.take_next_p() {
        Some(p) => m.acquire_p(p),
        None => fatal!("M{} was woken without a P", m.id),
    }
}

/// On g0 of an M that found a goroutine only `owner` may run: gives it the P. The caller goes to
/// sleep.
pub(crate) fn give_to_locked(m: &'static M, g: &'static G, owner: &'static M) {
    debug_assert_eq!(g.state(), GState::Runnable);
    if m.spinning.load(Ordering::Relaxed) {
        wake::stop_spinning(m);
    }
    if let Some(p) = m.release_p() {
        give(owner, p);
    }
}

/// The calling goroutine has no P, and cannot be moved: its G is queued as only this M's, and the M sleeps
/// right here until somebody brings a P.
pub(crate) fn give_up_here(m: &'static M, g: &'static G) {
    let pinned = stop_with_m(&mut SCHED.lock.lock(), m, g, false);
    wake::wake_if_idle();
    sleep_stopped(m, g, pinned);
}

/// Queues a goroutine that is stopped together with its M, before all others or in its turn. Returns what
/// [`sleep_stopped`] wants, which is the next thing that the M does.
pub(crate) fn stop_with_m(
    locked: &mut Locked,
    m: &'static M,
    g: &'static G,
    first: bool,
) -> *mut () {
    let pinned = g.pinned.swap(ptr::from_ref(m).cast_mut().cast(), Ordering::Relaxed);
    g.transition(GState::Running, GState::Runnable);
    locked.count_stopped_m(1);
    match first {
        true => locked.push_interrupted(g),
        false => locked.push_stopped(g),
    }
    pinned
}

/// Sleeps until somebody brings a P, and goes on with the goroutine.
pub(crate) fn sleep_stopped(m: &'static M, g: &'static G, pinned: *mut ()) {
    m.sleep(None);
    SCHED.lock.lock().count_stopped_m(-1);
    take_given_p(m);
    if let Some(p) = m.p() {
        p.start_slice();
    }
    g.pinned.store(pinned, Ordering::Relaxed);
    g.transition(GState::Runnable, GState::Running);
}

/// The M that alone may run `g`, if there is one.
#[inline]
pub(crate) fn owner_of(g: &'static G) -> Option<&'static M> {
    // SAFETY: null, or an M: they are never freed.
    unsafe { g.pinned.load(Ordering::Relaxed).cast::<M>().as_ref() }
}
