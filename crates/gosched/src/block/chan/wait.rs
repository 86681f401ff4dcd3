//! How a sender and a receiver wait on one channel, with a time limit or without one.

use super::any_chan::{AnyChan, Direction};
use super::core::{Chan, ChanError};
use crate::block::limit::{TIMEOUT, WaitTimeout};
use crate::block::wait_record::WaitRecord;
use crate::block::waiter::{Waiter, Wakeup};
use crate::gmp::g::G;
use crate::sched::{self, RuntimeGuard};
use crate::sys::clock;

impl<T> Chan<T> {
    /// # Safety
    /// - **slot**: holds the value to be sent, which is not the caller's any more after `Ok`; or is the
    ///   place for one.
    pub(super) unsafe fn transfer_until(
        &self,
        to: Direction,
        slot: *mut T,
        when: u64,
    ) -> Result<(), ChanError> {
        let wakeup = Wakeup::contested();
        let limit = WaitTimeout::new(&wakeup);
        // First without a timer: it may not be needed.
        for timed in [false, true] {
            if timed {
                if when <= clock::now() {
                    return Err(ChanError::WouldBlock);
                }
                limit.start(when);
            }
            let inside = sched::enter_runtime();
            self.lock();
            // SAFETY: held — above; slot — promised by the caller.
            match unsafe { self.transfer_now(to, slot) } {
                Ok(g) => {
                    self.unlock_and_ready(inside, g);
                    return Ok(());
                }
                Err(ChanError::WouldBlock) if timed => {
                    // SAFETY: held — above; slot — promised by the caller.
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
        unreachable!("the second time it waits")
    }

    /// As [`Chan::wait`], with a limit in force.
    ///
    /// # Safety
    /// - **held**, **slot**: as there.
    pub(super) unsafe fn wait_until(
        &self,
        inside: RuntimeGuard,
        wakeup: &Wakeup,
        to: Direction,
        slot: *mut (),
    ) -> Result<(), ChanError> {
        let waiter = Waiter::new(wakeup, 0, slot);
        // SAFETY: held — promised by the caller; frame — taken out below, under the lock.
        let woken = unsafe { self.enqueue(&waiter, to) };
        if let Some(g) = woken.0 {
            inside.ready(g);
        }
        let parking = Parking { waits: WaitRecord::one(wakeup, &waiter, true), core: self };
        // SAFETY: commit — it takes a `Parking`, and this frame waits.
        unsafe { inside.park(to.reason(), commit::<T>, (&raw const parking).cast()) };
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — above.
        unsafe { self.dequeue(&waiter, to) };
        self.unlock_and_ready(inside, None);
        match wakeup.fired() {
            Some(TIMEOUT) => Err(ChanError::WouldBlock),
            _ if waiter.is_woken_by_close() => Err(ChanError::Closed),
            _ => Ok(()),
        }
    }

    /// Waits in one queue. True: it happened. False: it was closed.
    ///
    /// # Safety
    /// - **held**: by the caller; given back here.
    /// - **slot**: holds the value to be sent, or is the place for one.
    pub(super) unsafe fn wait(&self, inside: RuntimeGuard, to: Direction, slot: *mut ()) -> bool {
        let wakeup = Wakeup::uncontested();
        let waiter = Waiter::new(&wakeup, 0, slot);
        // SAFETY: held — promised by the caller; frame — the only waiter of its turn, and this returns
        // when it was made ready.
        let woken = unsafe { self.enqueue(&waiter, to) };
        if let Some(g) = woken.0 {
            inside.ready(g);
        }
        let parking = Parking { waits: WaitRecord::one(&wakeup, &waiter, false), core: self };
        // SAFETY: commit — it takes a `Parking`, and this frame waits.
        unsafe { inside.park(to.reason(), commit::<T>, (&raw const parking).cast()) };
        !waiter.is_woken_by_close()
    }
}

/// What [`commit`] needs. `repr(C)`: what is waited for comes first.
#[repr(C)]
struct Parking<'a, T> {
    waits: WaitRecord<'a>,
    core: &'a Chan<T>,
}

/// The caller's context is saved: others may know.
/// Go: chanparkcommit.
///
/// # Safety
/// - **parking**: `data` is a `Parking<T>`, alive until the wakeup is committed, and what it names until the lock is free.
unsafe fn commit<T>(g: &'static G, data: *const ()) -> bool {
    // SAFETY: parking — promised by the caller.
    let &Parking { waits: WaitRecord { wakeup, .. }, core } =
        unsafe { &*data.cast::<Parking<'_, T>>() };
    // From here on a time limit may make it ready without the lock: the `Parking` may be gone.
    let wait = wakeup.commit(g);
    // The frame may be gone as soon as the lock is free, and the channel with it.
    // SAFETY: held — by the goroutine that waits.
    unsafe { core.unlock_and_forget() };
    wait
}
