//! Ms that are locked to a G: such an M runs that G and no other. This module never locks a G to an
//! M: `lock_os_thread` does.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::token::{OnM, OwnedP};
use crate::probe;
use crate::probe::event::EventKind;
use crate::sched::run::deadlock;
use crate::sched::state::global::{SCHED, check_runnable};
use crate::sched::wake::{self, give, hand_off};
use std::time::Duration;

/// Hands off the M's P and sleeps until the G that the M is locked to can run. Called on g0. The M
/// has a P when this function returns.
/// Go: stoplockedm.
pub(crate) fn stop_locked_m(mut on: OnM<'_>) {
    if on.spinning.is_spinning() {
        wake::stop_spinning(on.m());
    }
    SCHED.lock.lock().locked_ms += 1;
    if let Some((p, _)) = on.own_p().map(OwnedP::release) {
        hand_off::hand_off(p);
    }
    if probe::is_recording() {
        on.record(EventKind::Sleep { polls: false, keeps_time: false });
    }
    let last = deadlock::is_possible(&SCHED.lock.lock());
    if !(last && deadlock::sleep_as_the_last(on.lend())) {
        sleep_and_spill_cache(on.lend());
    }
    SCHED.lock.lock().locked_ms -= 1;
    if probe::is_recording() {
        on.record(EventKind::Awake {});
    }
    give::acquire_next_p(on);
}

/// Sleeps until the M is woken. After [`CACHE_SPILL_DELAY`], makes the memory in the M's allocation
/// cache available to other threads.
fn sleep_and_spill_cache(on: OnM<'_>) {
    if !on.sleep(Some(CACHE_SPILL_DELAY)) {
        gosched_alloc::flush_thread_cache();
        on.sleep(None);
    }
}

/// How long a locked M sleeps before it flushes its allocation cache.
pub(crate) const CACHE_SPILL_DELAY: Duration = Duration::from_millis(500);

/// Hands the caller's P to `owner`, the M that `g` is pinned to. Called on g0 by an M that found
/// `g` in a queue; the caller then has no P and sleeps.
/// Go: startlockedm.
pub(crate) fn start_locked_m(mut on: OnM<'_>, g: &'static G, owner: &'static M) {
    check_runnable(g);
    if on.spinning.is_spinning() {
        wake::stop_spinning(on.m());
    }
    if probe::is_recording() {
        // The owner sleeps, and runs `g` next, with this P.
        owner.set_source(on.take_source());
    }
    if let Some((p, _)) = on.own_p().map(OwnedP::release) {
        give::hand_p_to(owner, p);
    }
}
