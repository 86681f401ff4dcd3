//! A timer as the sender of a channel, with the semantics that Go's timers have since Go 1.23.
//!
//! The channel buffers one value, but hides it: its length and capacity are reported as 0. If that
//! value was not received when the next tick is due, the next tick is dropped. After
//! [`ChanTimer::stop`] no earlier value can be received. A timer whose channel has no waiting
//! receiver makes nothing ready when it fires: it does not prevent the report of a deadlock, and
//! virtual time does not advance for it.
//!
//! `fire` never makes a G ready itself: it appends the G to the list of its caller.

use super::any_chan::AnyChan;
use super::core::Chan;
use crate::block::sync::RawMutex;
use crate::gmp::list::GList;
use crate::gmp::timer::{Timer, TimerKind};
use crate::sched;
use std::cell::Cell;
use std::ptr;

/// A timer that sends into a channel: see the top of this file. The timer fires under the lock of
/// its heap. While it is in a heap, that lock protects the cells; otherwise `control` does.
#[repr(C)]
pub(crate) struct ChanTimer<T> {
    timer: Timer,
    /// Held by `reset` and `stop`: one of them runs at a time.
    control: RawMutex,
    /// The channel. Set once, before the timer is started.
    core: Cell<*const Chan<T>>,
    /// Converts a time, in nanoseconds, into the value to send.
    value: fn(u64) -> T,
    /// When the timer fires next, in nanoseconds of `clock::now`.
    when: Cell<u64>,
    /// Nanoseconds between ticks; 0 if the timer fires once.
    period: Cell<u64>,
}

// SAFETY: a lock protects the cells, as described above.
unsafe impl<T: Send> Sync for ChanTimer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for ChanTimer<T> {}

impl<T: Copy> ChanTimer<T> {
    const KIND: TimerKind = TimerKind { fire: fire::<T>, can_wake: Some(can_wake::<T>) };

    pub(super) fn new(value: fn(u64) -> T) -> ChanTimer<T> {
        ChanTimer {
            // SAFETY: fire — the timer is the first field of a `ChanTimer`, which stops it when
            // dropped.
            timer: unsafe { Timer::new(&Self::KIND) },
            control: RawMutex::new(),
            core: Cell::new(ptr::null()),
            value,
            when: Cell::new(0),
            period: Cell::new(0),
        }
    }
}

impl<T> ChanTimer<T> {
    /// Sets the channel.
    ///
    /// # Safety
    /// - **core**: `core` stays in place as long as the timer exists.
    pub(super) unsafe fn sends_to(&self, core: &Chan<T>) {
        self.core.set(core);
    }

    /// Starts the timer: it fires at `when`, and then after each `period` unless that is 0. Returns
    /// whether the timer was running, or had sent a value that was not received; that value is
    /// discarded.
    pub(crate) fn reset(&self, core: &Chan<T>, when: u64, period: u64) -> bool {
        self.control.lock();
        let was = self.cancel(core);
        self.when.set(when);
        self.period.set(period);
        // SAFETY: alive — the record stops the timer before it is freed; `cancel` has stopped the
        // timer.
        sched::start_timer(unsafe { self.timer.placed() }, when);
        // SAFETY: held — locked above.
        unsafe { self.control.unlock() };
        was
    }

    /// Stops the timer, and discards a value that was not received. Returns the same as
    /// [`ChanTimer::reset`].
    pub(crate) fn stop(&self, core: &Chan<T>) -> bool {
        self.control.lock();
        let was = self.cancel(core);
        // SAFETY: held — locked above.
        unsafe { self.control.unlock() };
        was
    }

    fn cancel(&self, core: &Chan<T>) -> bool {
        let waited = self.timer.stop();
        let unheard = core.try_receive().is_ok();
        waited || unheard
    }
}

impl<T> Drop for ChanTimer<T> {
    fn drop(&mut self) {
        self.timer.stop();
    }
}

/// Returns whether a receiver waits. See [`TimerKind::can_wake`].
///
/// # Safety
/// - **timer**: as for [`fire`].
unsafe fn can_wake<T>(timer: &Timer) -> bool {
    // SAFETY: timer — promised by the caller.
    let timer = unsafe { &*ptr::from_ref(timer).cast::<ChanTimer<T>>() };
    // SAFETY: core — set before the timer was first started.
    unsafe { &*timer.core.get() }.has_waiting_receivers()
}

/// Sends the time. See [`TimerKind::fire`].
///
/// # Safety
/// - **timer**: the first field of a `ChanTimer<T>` that has not been stopped.
unsafe fn fire<T: Copy>(timer: &Timer, now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: timer — promised by the caller.
    let timer = unsafe { &*ptr::from_ref(timer).cast::<ChanTimer<T>>() };
    let (when, period) = (timer.when.get(), timer.period.get());
    // As in Go, the value is the time at which the tick was due, not the time at which it is sent.
    let value = (timer.value)(when.min(now));
    // SAFETY: core — set before the timer was first started.
    let core = unsafe { &*timer.core.get() };
    core.lock();
    // SAFETY: held — locked above; value — `T` is `Copy`.
    let sent = unsafe { core.send_now(&value) };
    // SAFETY: held — locked above.
    unsafe { core.unlock() };
    if let Ok(Some(g)) = sent {
        ready.push_back(g);
    }
    if period == 0 {
        return None;
    }
    // Missed ticks are skipped.
    let late = now.saturating_sub(when) / period;
    let next = when.saturating_add(period.saturating_mul(late + 1));
    timer.when.set(next);
    Some(next)
}
