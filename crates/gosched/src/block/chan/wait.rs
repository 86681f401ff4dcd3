//! How a sender or a receiver waits on one channel, with or without a time limit. This module never
//! moves a value: `core` does, under the lock.

use super::any_chan::{AnyChan, Direction};
use super::core::{Chan, ChanError};
use crate::block::limit::{TIMEOUT, WaitTimeout};
use crate::block::wait_record::WaitRecord;
use crate::block::waiter::{Waiter, Wakeup};
use crate::gmp::commit::Commit;
use crate::gmp::g::G;
use crate::sched::{self, RuntimeGuard};
use crate::sys::clock;

impl<T> Chan<T> {
    /// Transfers a value, and waits if necessary, until `when` at most. Returns
    /// [`ChanError::WouldBlock`] if the time is over.
    ///
    /// # Safety
    /// - **slot**: holds the value to send, which no longer belongs to the caller after `Ok`; or is
    ///   the place for the received value.
    pub(super) unsafe fn transfer_until(
        &self,
        to: Direction,
        slot: *mut T,
        when: u64,
    ) -> Result<(), ChanError> {
        let wakeup = Wakeup::contested();
        let limit = WaitTimeout::new(&wakeup);
        // The first attempt is made without the timer, which may not be needed.
        for timed in [false, true] {
            if timed {
                if when <= clock::now() {
                    return Err(ChanError::WouldBlock);
                }
                limit.start(when);
            }
            let inside = sched::enter_runtime();
            self.lock();
            // SAFETY: held — locked above; slot — promised by the caller.
            match unsafe { self.transfer_now(to, slot) } {
                Ok(g) => {
                    self.unlock_and_ready(inside, g);
                    return Ok(());
                }
                Err(ChanError::WouldBlock) if timed => {
                    // SAFETY: held — locked above; slot — promised by the caller.
                    return unsafe { self.wait_until(inside, &wakeup, to, slot.cast()) };
                }
                Err(why) => {
                    self.unlock_and_ready(inside, None);
                    if why == ChanError::Closed {
                        return Err(why);
                    }
                }
            }
        }
        unreachable!("the second attempt waits")
    }

    /// Like [`Chan::wait`], with a time limit that has already been started.
    ///
    /// # Safety
    /// - **held**, **slot**: as for [`Chan::wait`].
    pub(super) unsafe fn wait_until(
        &self,
        mut inside: RuntimeGuard,
        wakeup: &Wakeup,
        to: Direction,
        slot: *mut (),
    ) -> Result<(), ChanError> {
        let waiter = Waiter::new(wakeup, 0, slot);
        // SAFETY: held — promised by the caller; frame — dequeued below, under the lock.
        let woken = unsafe { self.enqueue(&waiter, to) };
        if let Some(g) = woken.0 {
            inside.ready(g);
        }
        let parking = Parking { waits: WaitRecord::one(wakeup, &waiter, true), core: self };
        // SAFETY: commit — it takes a `Parking`, and this frame stays until the caller is made
        // ready.
        let commit = unsafe { Commit::new(commit::<T>, (&raw const parking).cast()) };
        inside.park(to.reason(), commit);
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — locked above.
        unsafe { self.dequeue(&waiter, to) };
        self.unlock_and_ready(inside, None);
        match wakeup.fired() {
            Some(TIMEOUT) => Err(ChanError::WouldBlock),
            _ if waiter.is_woken_by_close() => Err(ChanError::Closed),
            _ => Ok(()),
        }
    }

    /// Waits in one queue. Returns true if the value was transferred, and false if the channel was
    /// closed.
    ///
    /// # Safety
    /// - **held**: the caller holds the lock, which this function releases.
    /// - **slot**: holds the value to send, or is the place for the received value.
    pub(super) unsafe fn wait(
        &self,
        mut inside: RuntimeGuard,
        to: Direction,
        slot: *mut (),
    ) -> bool {
        let wakeup = Wakeup::uncontested();
        let waiter = Waiter::new(&wakeup, 0, slot);
        // SAFETY: held — promised by the caller; frame — this is the only waiter of its wakeup, and
        // this function returns only after it was made ready.
        let woken = unsafe { self.enqueue(&waiter, to) };
        if let Some(g) = woken.0 {
            inside.ready(g);
        }
        let parking = Parking { waits: WaitRecord::one(&wakeup, &waiter, false), core: self };
        // SAFETY: commit — it takes a `Parking`, and this frame stays until the caller is made
        // ready.
        let commit = unsafe { Commit::new(commit::<T>, (&raw const parking).cast()) };
        inside.park(to.reason(), commit);
        !waiter.is_woken_by_close()
    }
}

/// The data that [`commit`] takes. `repr(C)`: the [`WaitRecord`] must come first.
#[repr(C)]
struct Parking<'a, T> {
    waits: WaitRecord<'a>,
    core: &'a Chan<T>,
}

/// Publishes the parked G, whose context is saved, and releases the channel's lock.
/// Go: chanparkcommit.
///
/// # Safety
/// - **parking**: `data` is a `Parking<T>`, alive until the wakeup is committed; the channel is
///   alive until its lock is released.
unsafe fn commit<T>(g: &'static G, data: *const ()) -> bool {
    // SAFETY: parking — promised by the caller.
    let &Parking { waits: WaitRecord { wakeup, .. }, core } =
        unsafe { &*data.cast::<Parking<'_, T>>() };
    // From here on a time limit may make the G ready without the lock, so the `Parking` may be
    // gone.
    let wait = wakeup.commit(g);
    // The frame, and the channel with it, may be gone as soon as the lock is released.
    // SAFETY: held — by the goroutine that waits.
    unsafe { core.unlock_and_forget() };
    wait
}
