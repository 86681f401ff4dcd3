//! Time limits of waits: a timer that fires a wakeup ([`WaitTimeout`]), or that changes a word in which the caller
//! leaves itself when it waits ([`Alarm`]). Either may ring before the caller has got that far: it then
//! finds a sign, and does not wait.

use super::waiter::{Fired, Wakeup};
use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::timer::{Timer, TimerKind};
use crate::sched::{self, ThreadDeadline};
use crate::sys::clock;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

/// The waiter's number for "the time is over".
pub(crate) const TIMEOUT: usize = usize::MAX / 2;

/// See the top of this file. Once it is started it must not be moved, not even to be dropped: it is
/// stopped where it is, at the end of its scope.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WaitTimeout<'a> {
    alarm: Alarm,
    borrowed: PhantomData<&'a Wakeup>,
}

impl<'a> WaitTimeout<'a> {
    /// For a contested wakeup.
    pub(crate) fn new(wakeup: &'a Wakeup) -> WaitTimeout<'a> {
        // SAFETY: data — the wakeup outlives the limit.
        let alarm = unsafe { Alarm::new(fire_wakeup, ptr::from_ref(wakeup).cast()) };
        WaitTimeout { alarm, borrowed: PhantomData }
    }

    /// From now on.
    pub(crate) fn start(&self, when: u64) {
        self.alarm.start(when);
    }
}

/// # Safety
/// - **data**: a wakeup.
unsafe fn fire_wakeup(data: *const ()) -> AlarmEffect {
    // SAFETY: data — promised by the caller.
    let wakeup = unsafe { &*data.cast::<Wakeup>() };
    match wakeup.fire(TIMEOUT) {
        Fired::Ready(g) => AlarmEffect::Ready(g),
        Fired::NotParked | Fired::TooLate => AlarmEffect::Nothing,
    }
}

/// What came of the ringing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AlarmEffect {
    /// The caller waited: it was taken out, and is to be made ready.
    Ready(&'static G),
    /// The caller has not got that far, and will see a sign; or somebody else was first.
    Nothing,
}

/// The time is over: leaves a sign, or takes the caller out of where it waits, to be made ready. Under a
/// timer's lock: no allocation, no panic.
///
/// # Safety
/// - **data**: what the alarm was made with.
pub(crate) type Ring = unsafe fn(data: *const ()) -> AlarmEffect;

/// See the top of this file. Once it is started it must not be moved, as [`WaitTimeout`].
///
/// A goroutine's is a timer. A thread's is the limit of its sleep: it takes itself out.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: Timer,
    ring: Ring,
    data: *const (),
    of_thread: Cell<bool>,
}

static TIMER: TimerKind = TimerKind { fire, can_wake: None };

impl Alarm {
    /// # Safety
    /// - **data**: `ring` may be called with it until the alarm is dropped.
    pub(crate) unsafe fn new(ring: Ring, data: *const ()) -> Alarm {
        // SAFETY: fire — the timer is the first field of an `Alarm`, which stops it when it goes.
        let timer = unsafe { Timer::new(&TIMER) };
        Alarm { timer, ring, data, of_thread: Cell::new(false) }
    }

    /// From now on.
    pub(crate) fn start(&self, when: u64) {
        if current::is_fiber() || clock::is_virtual() {
            // SAFETY: alive — stopped before it goes; it is a local of every caller, and stays where it
            // is.
            unsafe { sched::start_timer(&self.timer, when) };
        } else {
            self.of_thread.set(true);
            sched::set_thread_deadline(Some(ThreadDeadline {
                when,
                cancel_wait: take_out,
                data: ptr::from_ref(self).cast(),
            }));
        }
    }

    /// It does not ring any more.
    pub(crate) fn stop(&self) {
        if self.of_thread.replace(false) {
            sched::set_thread_deadline(None);
        } else {
            self.timer.stop();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.stop();
    }
}

/// # Safety
/// - **alarm**: the timer is an `Alarm`'s, not yet stopped.
unsafe fn fire(timer: &Timer, _now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: alarm — promised by the caller.
    let alarm = unsafe { &*ptr::from_ref(timer).cast::<Alarm>() };
    // SAFETY: data — promised when it was made.
    if let AlarmEffect::Ready(g) = unsafe { (alarm.ring)(alarm.data) } {
        ready.push_back(g);
    }
    None
}

/// # Safety
/// - **alarm**: `data` is an `Alarm` of the calling thread.
unsafe fn take_out(data: *const ()) -> bool {
    // SAFETY: alarm — promised by the caller.
    let alarm = unsafe { &*data.cast::<Alarm>() };
    // SAFETY: data — promised when it was made.
    matches!(unsafe { (alarm.ring)(alarm.data) }, AlarmEffect::Ready(_))
}
