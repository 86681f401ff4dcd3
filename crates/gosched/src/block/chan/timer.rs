//! A timer as the sender of a channel: Go's, as they are since 1.23.
//!
//! The channel has room for one value, but does not show it: its length and capacity are 0. A tick that
//! nobody has taken when the next one comes is all there is. After [`ChanTimer::stop`] no value of before
//! can be received. A timer on whose channel nothing waits can wake nothing: it does not keep a deadlock from being
//! reported, and virtual time does not stop for it.

use super::any_chan::AnyChan;
use super::core::Chan;
use crate::block::sync::RawMutex;
use crate::gmp::list::GList;
use crate::gmp::timer::{Timer, TimerKind};
use crate::sched;
use std::cell::Cell;
use std::ptr;

/// See the top of this file. The timer is fired with the lock of its heap held; what is in cells is under
/// that lock while it is in a heap, and under `control` while it is not.
#[repr(C)]
pub(crate) struct ChanTimer<T> {
    timer: Timer,
    /// One at a time changes it.
    control: RawMutex,
    core: Cell<*const Chan<T>>,
    value: fn(u64) -> T,
    when: Cell<u64>,
    /// 0: it is fired once.
    period: Cell<u64>,
}

// SAFETY: as said above.
unsafe impl<T: Send> Sync for ChanTimer<T> {}
// SAFETY: as said above.
unsafe impl<T: Send> Send for ChanTimer<T> {}

impl<T: Copy> ChanTimer<T> {
    const KIND: TimerKind = TimerKind { fire: fire::<T>, can_wake: Some(can_wake::<T>) };

    pub(super) fn new(value: fn(u64) -> T) -> ChanTimer<T> {
        ChanTimer {
            // SAFETY: fire — the timer is the first field of a `ChanTimer`, which stops it when it goes.
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
    /// # Safety
    /// - **core**: it stays where it is for as long as the timer does.
    pub(super) unsafe fn sends_to(&self, core: &Chan<T>) {
        self.core.set(core);
    }

    /// Fires it at `when`, and then again after each `period`, if that is not 0. True if it was to be
    /// fired, or its value had not been received: that is gone.
    pub(crate) fn reset(&self, core: &Chan<T>, when: u64, period: u64) -> bool {
        self.control.lock();
        let was = self.cancel(core);
        self.when.set(when);
        self.period.set(period);
        // SAFETY: alive — in a record that is dropped after it was stopped; it is not started now.
        unsafe { sched::start_timer(&self.timer, when) };
        // SAFETY: held — above.
        unsafe { self.control.unlock() };
        was
    }

    /// It is not fired any more, and what it sent is gone. True as [`ChanTimer::reset`].
    pub(crate) fn stop(&self, core: &Chan<T>) -> bool {
        self.control.lock();
        let was = self.cancel(core);
        // SAFETY: held — above.
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

/// See [`TimerKind::can_wake`].
///
/// # Safety
/// - **timer**: as for [`fire`].
unsafe fn can_wake<T>(timer: &Timer) -> bool {
    // SAFETY: timer — promised by the caller.
    let timer = unsafe { &*ptr::from_ref(timer).cast::<ChanTimer<T>>() };
    // SAFETY: core — set before it was ever started.
    unsafe { &*timer.core.get() }.has_waiting_receivers()
}

/// # Safety
/// - **timer**: a `ChanTimer<T>`'s, not yet stopped.
unsafe fn fire<T: Copy>(timer: &Timer, now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: timer — promised by the caller.
    let timer = unsafe { &*ptr::from_ref(timer).cast::<ChanTimer<T>>() };
    let (when, period) = (timer.when.get(), timer.period.get());
    // As in Go: the time that it was to come, not when it did.
    let value = (timer.value)(when.min(now));
    // SAFETY: core — set before it was ever started.
    let core = unsafe { &*timer.core.get() };
    core.lock();
    // SAFETY: held — above; value — it can be copied.
    let sent = unsafe { core.send_now(&value) };
    // SAFETY: held — above.
    unsafe { core.unlock() };
    if let Ok(Some(g)) = sent {
        ready.push_back(g);
    }
    if period == 0 {
        return None;
    }
    // Ticks that were missed are missed.
    let late = now.saturating_sub(when) / period;
    let next = when.saturating_add(period.saturating_mul(late + 1));
    timer.when.set(next);
    Some(next)
}
