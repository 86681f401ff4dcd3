//! How others wake sysmon: it may sleep on its word, or in the poller.

use crate::sched::state::global::SCHED;
use crate::sys::poller;
use crate::sys::sleep_word::SleepWord;
use crate::sys::{barrier, clock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Not 0: it is to look at once.
/// Go: sched.sysmonnote.
pub(crate) static WAKE_WORD: SleepWord = SleepWord::new();

/// It sleeps until a P is not idle. Written under the scheduler's lock.
/// Go: sched.sysmonwait.
pub(crate) static ASLEEP: AtomicBool = AtomicBool::new(false);

/// It waits for longer than it would if all Ps were busy.
pub(crate) static IN_LONG_DELAY: AtomicBool = AtomicBool::new(false);

/// Until when it sleeps; 0: it does not, or need not be told of timers.
pub(crate) static SLEEPS_UNTIL: AtomicU64 = AtomicU64::new(0);

/// A P is idle no more: somebody should watch; sooner than planned, if it was the last one. Under the
/// scheduler's lock.
#[inline]
pub(crate) fn on_idle_p_acquired() {
    barrier::light();
    let last = SCHED.idle_ps.load(Ordering::Relaxed) == 0 && IN_LONG_DELAY.load(Ordering::Relaxed);
    if last || ASLEEP.load(Ordering::Relaxed) {
        clock::update_coarse_now(clock::real_now());
        ASLEEP.store(false, Ordering::Relaxed);
        IN_LONG_DELAY.store(false, Ordering::Relaxed);
        wake_sysmon();
    }
}

/// Somebody waits for a P that an M may be blocked with.
pub(crate) fn wake_sysmon() {
    WAKE_WORD.set(1);
    WAKE_WORD.wake();
    wake_sysmon_from_poller();
}

/// There is a timer earlier than all others, and all Ps are busy.
pub(crate) fn wake_for_timer(when: u64) {
    // PAIR timers: one order for this, the time of the first timer, and sysmon's two steps.
    if SLEEPS_UNTIL.load(Ordering::SeqCst) > when && SCHED.idle_ps.load(Ordering::Relaxed) == 0 {
        SLEEPS_UNTIL.store(when, Ordering::Relaxed);
        wake_sysmon();
    }
}

/// It sleeps until a P is not idle.
pub(crate) fn is_asleep() -> bool {
    ASLEEP.load(Ordering::Relaxed)
}

/// Sysmon is in the poller, or about to be.
pub(crate) static SYSMON_IN_POLLER: AtomicBool = AtomicBool::new(false);

/// Calls sysmon out of the poller. It has been told why.
fn wake_sysmon_from_poller() {
    // PAIR watches: one order for this, sysmon's word, and its way into the poller.
    if SYSMON_IN_POLLER.load(Ordering::SeqCst)
        && let Some(stop) = poller::sysmon_wake_fd()
    {
        poller::signal_eventfd(stop);
    }
}
