//! When the first timer is due, and which sleeping M wakes for it. `protocol::timekeeping`
//! describes the protocol. This module never fires a timer and never wakes an M: `run::timers` does
//! both.

use crate::gmp::m::M;
use crate::gmp::timer::NEVER;
use crate::protocol::timekeeping::Timekeeping;
use crate::sched::state::global::Locked;
use crate::sched::state::sysmon_alarm;
use crate::sys::clock;
use std::ptr;

/// When the first timer is due, and when the timekeeper wakes.
/// Go: sched.pollUntil.
pub(crate) static TIMEKEEPING: Timekeeping = Timekeeping::new();

/// Returns whether a timer may be due.
#[inline]
pub(crate) fn are_due() -> bool {
    let earliest = TIMEKEEPING.earliest();
    earliest != NEVER && earliest <= clock::now()
}

/// Returns the time until the first timer is due, in nanoseconds. Returns `None` if there is no
/// timer, or if time is virtual.
pub(crate) fn until_next() -> Option<u64> {
    let earliest = TIMEKEEPING.earliest_in_order();
    (earliest != NEVER && !clock::is_virtual()).then(|| earliest.saturating_sub(clock::now()))
}

/// As [`resign_timekeeper`], for an M that gets a P and may run a G before any M becomes the
/// timekeeper.
pub(crate) fn resign_timekeeper_with_p(locked: &mut Locked, m: &'static M) {
    if resign_timekeeper(locked, m) && !clock::is_virtual() {
        sysmon_alarm::on_timekeeper_leaving(TIMEKEEPING.earliest());
    }
}

/// Takes the role of timekeeper from `m`, if `m` holds it. Returns whether `m` held it. Called
/// under the lock.
pub(crate) fn resign_timekeeper(locked: &mut Locked, m: &'static M) -> bool {
    let was = locked.timekeeper.is_some_and(|keeper| ptr::eq(keeper, m));
    if was {
        locked.timekeeper = None;
        TIMEKEEPING.resign();
    }
    was
}
