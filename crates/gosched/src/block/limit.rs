//! A time limit of a wait: a timer that fires its turn.

use super::waiter::{Fired, Turn};
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
