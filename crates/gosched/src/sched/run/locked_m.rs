//! An M that a goroutine is locked to: it runs that goroutine and no other.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::state::GState;
use crate::sched::run::deadlock;
use crate::sched::state::global::SCHED;
use crate::sched::wake::{self, give, hand_off};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// On g0 of an M that is locked to a goroutine: gives the P away and sleeps until the goroutine can
/// run. Returns with a P.
/// Go: stoplockedm.
pub(crate) fn stop_locked_m(m: &'static M) {
    if m.spinning.load(Ordering::Relaxed) {
        wake::stop_spinning(m);
    }
    SCHED.lock.lock().locked_ms += 1;
    if let Some(p) = m.release_p() {
        hand_off::hand_off(p);
    }
    let last = deadlock::is_possible(&SCHED.lock.lock());
    if !(last && deadlock::sleep_as_the_last(m)) {
        sleep_and_spill_cache(m);
    }
    SCHED.lock.lock().locked_ms -= 1;
    give::acquire_next_p(m);
}

/// Sleeps until it is woken. After a while, what memory the M keeps is everybody's.
fn sleep_and_spill_cache(m: &'static M) {
    if !m.sleep(Some(CACHE_SPILL_DELAY)) {
        gosched_alloc::flush_thread_cache();
        m.sleep(None);
    }
}

/// Sleep is not long before that.
pub(crate) const CACHE_SPILL_DELAY: Duration = Duration::from_millis(500);

/// On g0 of an M that found a goroutine only `owner` may run: gives it the P. The caller goes to
/// sleep.
/// Go: startlockedm.
pub(crate) fn start_locked_m(m: &'static M, g: &'static G, owner: &'static M) {
    debug_assert_eq!(g.state(), GState::Runnable);
    if m.spinning.load(Ordering::Relaxed) {
        wake::stop_spinning(m);
    }
    if let Some(p) = m.release_p() {
        give::hand_p_to(owner, p);
    }
}
