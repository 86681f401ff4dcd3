//! Time limits of waits: a timer that fires a wakeup ([`WaitTimeout`]), or one that changes the
//! word in which a caller publishes that it waits ([`Alarm`]).
//!
//! Either may expire before the caller has published its wait. It then leaves a mark, and the
//! caller finds the mark and does not wait.
//!
//! A time limit never makes a G ready itself: the timer appends the G to the list of its caller.

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

/// The number that [`Wakeup::fired`] returns if the time limit ended the wait.
pub(crate) const TIMEOUT: usize = usize::MAX / 2;

/// The time limit of a wait: see the top of this file. Once started it must not be moved, not even
/// to be dropped: it is stopped in place, at the end of its scope.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WaitTimeout<'a> {
    alarm: Alarm,
    borrowed: PhantomData<&'a Wakeup>,
}

impl<'a> WaitTimeout<'a> {
    /// Creates a limit for `wakeup`, which must be contested.
    pub(crate) fn new(wakeup: &'a Wakeup) -> WaitTimeout<'a> {
        // SAFETY: data — the wakeup outlives the limit.
        let alarm = unsafe { Alarm::new(fire_wakeup, ptr::from_ref(wakeup).cast()) };
        WaitTimeout { alarm, borrowed: PhantomData }
    }

    /// Starts the limit, which expires at `when`, in nanoseconds of `clock::now`.
    pub(crate) fn start(&self, when: u64) {
        self.alarm.start(when);
    }
}

/// Fires the wakeup: the limit has expired.
///
/// # Safety
/// - **data**: a `Wakeup`.
unsafe fn fire_wakeup(data: *const ()) -> AlarmEffect {
    // SAFETY: data — promised by the caller.
    let wakeup = unsafe { &*data.cast::<Wakeup>() };
    match wakeup.fire(TIMEOUT) {
        Fired::Ready(g) => AlarmEffect::Ready(g),
        Fired::NotParked | Fired::TooLate => AlarmEffect::Nothing,
    }
}

/// What a [`Ring`] function did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AlarmEffect {
    /// The caller was waiting. The function removed it from where it waits, and it must be made
    /// ready.
    Ready(&'static G),
    /// The caller has not published its wait and will find the mark; or the wait has ended already.
    Nothing,
}

/// The function that is called when an alarm expires. It leaves a mark for the caller, or it
/// removes the caller from where it waits and returns its G. It may run under the lock of a timer
/// heap: it must neither allocate nor panic.
///
/// # Safety
/// - **data**: the pointer that was given to [`Alarm::new`].
pub(crate) type Ring = unsafe fn(data: *const ()) -> AlarmEffect;

/// A time limit that calls a [`Ring`] function: see the top of this file. Once started it must not
/// be moved, like [`WaitTimeout`].
///
/// The alarm of a goroutine is a timer. The alarm of a thread is the deadline of its next sleep,
/// and the thread itself calls the function.
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
    /// Creates an alarm that is not started.
    ///
    /// # Safety
    /// - **data**: `ring` may be called with `data` until the alarm is dropped.
    pub(crate) unsafe fn new(ring: Ring, data: *const ()) -> Alarm {
        // SAFETY: fire — the timer is the first field of an `Alarm`, which stops it when dropped.
        let timer = unsafe { Timer::new(&TIMER) };
        Alarm { timer, ring, data, of_thread: Cell::new(false) }
    }

    /// Starts the alarm, which expires at `when`, in nanoseconds of `clock::now`.
    pub(crate) fn start(&self, when: u64) {
        if current::is_fiber() || clock::is_virtual() {
            // SAFETY: alive — the alarm is a local of every caller, is not moved, and stops the
            // timer when it is dropped.
            sched::start_timer(unsafe { self.timer.placed() }, when);
        } else {
            self.of_thread.set(true);
            sched::set_thread_deadline(Some(ThreadDeadline {
                when,
                cancel_wait: take_out,
                data: ptr::from_ref(self).cast(),
            }));
        }
    }

    /// Stops the alarm. Its function is not called after this.
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

/// Calls the alarm's function. See `TimerKind::fire`.
///
/// # Safety
/// - **alarm**: `timer` is the first field of an `Alarm` that has not been stopped.
unsafe fn fire(timer: &Timer, _now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: alarm — promised by the caller.
    let alarm = unsafe { &*ptr::from_ref(timer).cast::<Alarm>() };
    // SAFETY: data — promised to `Alarm::new`.
    if let AlarmEffect::Ready(g) = unsafe { (alarm.ring)(alarm.data) } {
        ready.push_back(g);
    }
    None
}

/// Calls the alarm's function for a thread. Returns whether the thread was waiting.
///
/// # Safety
/// - **alarm**: `data` is an `Alarm` of the calling thread.
unsafe fn take_out(data: *const ()) -> bool {
    // SAFETY: alarm — promised by the caller.
    let alarm = unsafe { &*data.cast::<Alarm>() };
    // SAFETY: data — promised to `Alarm::new`.
    matches!(unsafe { (alarm.ring)(alarm.data) }, AlarmEffect::Ready(_))
}
