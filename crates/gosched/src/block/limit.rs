//! Time limits of waits: a timer that fires a turn ([`Limit`]), or that changes a word in which the caller
//! leaves itself when it waits ([`Alarm`]). Either may ring before the caller has got that far: it then
//! finds a sign, and does not wait.

use super::waiter::{Fired, Turn};
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::timer::Timer;
use crate::sched;
use std::marker::PhantomData;

/// The waiter's number for "the time is over".
pub(crate) const TIMEOUT: usize = usize::MAX / 2;

/// See the top of this file. It is stopped when it is dropped, and must not be moved once it is started.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Limit<'a> {
    timer: Timer,
    turn: *const Turn,
    borrowed: PhantomData<&'a Turn>,
}

impl<'a> Limit<'a> {
    /// For a turn that is not alone.
    pub(crate) fn new(turn: &'a Turn) -> Limit<'a> {
        // SAFETY: fire — the timer is the first field of a `Limit`, which stops it when it goes.
        let timer = unsafe { Timer::new(fire) };
        Limit { timer, turn, borrowed: PhantomData }
    }

    /// From now on.
    pub(crate) fn start(&self, when: u64) {
        // SAFETY: alive — stopped when dropped; it is a local of every caller, and stays where it is.
        unsafe { sched::start_timer(&self.timer, when) };
    }
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        self.timer.stop();
    }
}

/// # Safety
/// - **limit**: the timer is a `Limit`'s, not yet stopped.
unsafe fn fire(timer: &Timer, _now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: limit — promised by the caller.
    let limit = unsafe { &*std::ptr::from_ref(timer).cast::<Limit<'_>>() };
    // SAFETY: borrowed: it outlives the limit.
    let turn = unsafe { &*limit.turn };
    if let Fired::Ready(g) = turn.fire(TIMEOUT) {
        ready.push_back(g);
    }
    None
}

/// The time is over: leaves a sign, or takes the caller out of where it waits, to be made ready. Under a
/// timer's lock: no allocation, no panic.
///
/// # Safety
/// - **data**: what the alarm was made with.
pub(crate) type Ring = unsafe fn(data: *const ()) -> Option<&'static G>;

/// See the top of this file. It is stopped when it is dropped, and must not be moved once it is started.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: Timer,
    ring: Ring,
    data: *const (),
}

impl Alarm {
    /// # Safety
    /// - **data**: `ring` may be called with it until the alarm is dropped.
    pub(crate) unsafe fn new(ring: Ring, data: *const ()) -> Alarm {
        // SAFETY: fire — the timer is the first field of an `Alarm`, which stops it when it goes.
        let timer = unsafe { Timer::new(fire_alarm) };
        Alarm { timer, ring, data }
    }

    /// From now on.
    pub(crate) fn start(&self, when: u64) {
        // SAFETY: alive — stopped when dropped; it is a local of every caller, and stays where it is.
        unsafe { sched::start_timer(&self.timer, when) };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.timer.stop();
    }
}

/// # Safety
/// - **alarm**: the timer is an `Alarm`'s, not yet stopped.
unsafe fn fire_alarm(timer: &Timer, _now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: alarm — promised by the caller.
    let alarm = unsafe { &*std::ptr::from_ref(timer).cast::<Alarm>() };
    // SAFETY: data — promised when it was made.
    if let Some(g) = unsafe { (alarm.ring)(alarm.data) } {
        ready.push_back(g);
    }
    None
}
