//! Wakes sysmon, which sleeps on its word or in the poller. This module never puts sysmon to sleep:
//! `monitor::sysmon` and `monitor::poll_watch` do.

use crate::sched::state::global::SCHED;
use crate::sys::poller;
use crate::sys::sleep_word::SleepWord;
use crate::sys::{barrier, clock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The word that sysmon sleeps on. Nonzero if sysmon must run its next tick at once.
/// Go: sched.sysmonnote.
pub(crate) static WAKE_WORD: SleepWord = SleepWord::new();

/// Whether sysmon sleeps until a P is acquired. Written under the scheduler's lock.
/// Go: sched.sysmonwait.
pub(crate) static ASLEEP: AtomicBool = AtomicBool::new(false);

/// Whether sysmon's present delay is longer than it would be if all Ps were busy.
pub(crate) static IN_LONG_DELAY: AtomicBool = AtomicBool::new(false);

/// When sysmon's present delay ends; 0 if sysmon is awake, or sleeps until a P is acquired.
pub(crate) static SLEEPS_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Wakes sysmon after an idle P was acquired, if sysmon sleeps until then, or if that was the last
/// idle P and sysmon is in a long delay. Called under the scheduler's lock.
#[inline]
pub(crate) fn on_idle_p_acquired() {
    barrier::light();
    let last = SCHED.counts.idle_ps() == 0 && IN_LONG_DELAY.load(Ordering::Relaxed);
    if last || ASLEEP.load(Ordering::Relaxed) {
        clock::update_coarse_now(clock::real_now());
        ASLEEP.store(false, Ordering::Relaxed);
        IN_LONG_DELAY.store(false, Ordering::Relaxed);
        wake_sysmon();
    }
}

/// Makes sysmon run its next tick at once.
pub(crate) fn wake_sysmon() {
    WAKE_WORD.set(1);
    WAKE_WORD.wake();
    wake_sysmon_from_poller();
}

/// Wakes sysmon if it would sleep for longer than until `earliest`, when the first timer is due.
/// Called by a thread that has recorded that there is no timekeeper, because the M gets a P and
/// runs Gs: the other Ms may sleep without a time limit.
pub(crate) fn on_timekeeper_leaving(earliest: u64) {
    // PAIR timers: in one SeqCst order with the record before it, and with the two steps of sysmon
    // in `cap_delay_by_timer`.
    if SLEEPS_UNTIL.load(Ordering::SeqCst) > earliest {
        SLEEPS_UNTIL.store(earliest, Ordering::Relaxed);
        wake_sysmon();
    }
}

/// Wakes sysmon for a timer that is due at `when`, before all other timers, if sysmon would sleep
/// for longer and all Ps are busy.
pub(crate) fn wake_for_timer(when: u64) {
    // PAIR timers: in one SeqCst order with the update of `earliest` before it, and with the two
    // steps of sysmon in `cap_delay_by_timer`.
    if SLEEPS_UNTIL.load(Ordering::SeqCst) > when && SCHED.counts.idle_ps() == 0 {
        SLEEPS_UNTIL.store(when, Ordering::Relaxed);
        wake_sysmon();
    }
}

/// Returns whether sysmon sleeps until a P is acquired.
pub(crate) fn is_asleep() -> bool {
    ASLEEP.load(Ordering::Relaxed)
}

/// Whether sysmon sleeps in the poller, or is about to.
pub(crate) static SYSMON_IN_POLLER: AtomicBool = AtomicBool::new(false);

/// Wakes sysmon if it sleeps in the poller. The caller has set [`WAKE_WORD`] before.
fn wake_sysmon_from_poller() {
    // PAIR watches: in one order with the store to `WAKE_WORD` before it, and with sysmon, which
    // sets this flag before it reads the word.
    if SYSMON_IN_POLLER.load(Ordering::SeqCst)
        && let Some(stop) = poller::sysmon_wake_fd()
    {
        poller::signal_eventfd(stop);
    }
}
