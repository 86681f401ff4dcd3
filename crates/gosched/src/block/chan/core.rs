//! What a channel is: a ring of values, those who wait to send, those who wait to receive, and one lock.
//!
//! **Invariants, whenever the lock is free.** Receivers wait only while the ring is empty and nobody
//! waits to send; senders wait only while the ring is full. A closed channel has no one waiting.
//!
//! A value goes straight from a sender to a receiver that waits: one copy, into the receiver's frame.
//! Where the ring is full and a receiver comes, it takes the oldest value and puts the first waiting
//! sender's into the place. Under the lock values are only copied: nothing of the program's own runs.
//!
//! Others may look at `len`, `closed` and the two flags without the lock, as Go's non-blocking calls do:
//! an answer "no" was true at some moment during the call.

use super::any_chan::{AnyChan, Direction};
use super::async_waiter::AsyncWaiters;
use super::ends::EndCounts;
use crate::block::waiter::WaitQueue;
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::sched::{self, RuntimeGuard};
use crate::sys::Lock;
use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, offset_of};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// See the top of this file.
/// Go: hchan.
pub(crate) struct Chan<T> {
    pub(super) lock: Lock<State>,
    ring: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// How many values are in the ring. Written under the lock.
    len: AtomicUsize,
    /// Written under the lock.
    closed: AtomicBool,
    /// Whether somebody waits to send. Written under the lock.
    senders_wait: AtomicBool,
    /// Whether somebody waits to receive. Written under the lock.
    pub(super) receivers_wait: AtomicBool,
    /// Whether async code waits to receive. Written under the lock.
    pub(super) has_async_waiters: AtomicBool,
    pub(super) end_counts: EndCounts,
}

// SAFETY: values go from thread to thread, each to one; everything else is under the lock, or atomic.
unsafe impl<T: Send> Send for Chan<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Chan<T> {}

/// What is under the lock.
#[derive(Debug)]
pub(super) struct State {
    /// Where the oldest value is.
    head: usize,
    pub(super) senders: WaitQueue,
    receivers: WaitQueue,
    /// Async code that waits to receive.
    pub(super) async_waiters: AsyncWaiters,
}

/// Why a value was not sent, or not received, at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChanError {
    /// Nobody is there, or there is no room: later perhaps.
    WouldBlock,
    /// It is closed.
    Closed,
}

impl<T> Chan<T> {
    /// Where it is told who holds the ends.
    pub(super) const END_COUNTS_OFFSET: usize = offset_of!(Chan<T>, end_counts);

    /// With one receiver.
    /// Go: makechan.
    #[track_caller]
    pub(crate) fn new(cap: usize, senders: usize) -> Chan<T> {
        let mut ring = Vec::new();
        if ring.try_reserve_exact(cap).is_err() {
            panic!(
                "`chan({cap})`: there is no memory for so many values of {} bytes",
                size_of::<T>()
            );
        }
        // SAFETY: reserved above; what may be uninitialised need not be initialised.
        unsafe { ring.set_len(cap) };
        Chan {
            lock: Lock::new(State::new()),
            ring: ring.into_boxed_slice(),
            len: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            senders_wait: AtomicBool::new(false),
            receivers_wait: AtomicBool::new(false),
            has_async_waiters: AtomicBool::new(false),
            end_counts: EndCounts::new(senders),
        }
    }

    pub(crate) fn cap(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        // PAIR chan-closed: what its closer did before is done.
        self.closed.load(Ordering::Acquire)
    }

    /// # Safety
    /// - **held**: by the caller; no other reference is in use.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the lock is held: the caller promises so")]
    pub(super) unsafe fn state(&self) -> &mut State {
        // SAFETY: held — promised by the caller.
        unsafe { self.lock.value() }
    }

    /// The place of the value `nth` from the oldest.
    fn place(&self, head: usize, nth: usize) -> *mut T {
        let at = head + nth;
        let at = if at >= self.cap() { at - self.cap() } else { at };
        self.ring[at].get().cast()
    }

    /// Sends `*value` if that can be done now: it is moved out then, and the caller makes ready whom it
    /// gets, after the lock was given back.
    /// Go: send, sendDirect where a receiver waits.
    ///
    /// # Safety
    /// - **held**: by the caller.
    /// - **value**: can be read; after `Ok` it is not the caller's any more.
    #[inline]
    pub(crate) unsafe fn send_now(&self, value: *const T) -> Result<Option<&'static G>, ChanError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(ChanError::Closed);
        }
        // SAFETY: held — promised by the caller.
        let state = unsafe { self.state() };
        if let Some(receiver) = state.receivers.fire_next() {
            self.publish_waiters(state);
            // SAFETY: value — promised by the caller; the slot is a place for a `T`, by `receive`.
            unsafe { ptr::copy_nonoverlapping(value, receiver.slot().cast::<T>(), 1) };
            return Ok(receiver.g());
        }
        let len = self.len.load(Ordering::Relaxed);
        if len == self.cap() {
            return Err(ChanError::WouldBlock);
        }
        let place = self.place(state.head, len);
        // SAFETY: value — promised by the caller; the place is free.
        unsafe { ptr::copy_nonoverlapping(value, place, 1) };
        self.len.store(len + 1, Ordering::Relaxed);
        Ok(self.notify_async(state))
    }

    /// Receives into `*slot` if that can be done now; the caller makes ready whom it gets, after the lock
    /// was given back.
    /// Go: recv, recvDirect where a sender waits.
    ///
    /// # Safety
    /// - **held**: by the caller.
    /// - **slot**: can be written.
    #[inline]
    pub(crate) unsafe fn receive_now(&self, slot: *mut T) -> Result<Option<&'static G>, ChanError> {
        // SAFETY: held — promised by the caller.
        let state = unsafe { self.state() };
        let len = self.len.load(Ordering::Relaxed);
        if len > 0 {
            let place = self.place(state.head, 0);
            // SAFETY: slot — promised by the caller; a value is there, and is taken out.
            unsafe { ptr::copy_nonoverlapping(place, slot, 1) };
            state.head = if state.head + 1 == self.cap() { 0 } else { state.head + 1 };
            let Some(sender) = state.senders.fire_next() else {
                self.len.store(len - 1, Ordering::Relaxed);
                return Ok(None);
            };
            self.publish_waiters(state);
            let place = self.place(state.head, len - 1);
            // SAFETY: the sender's slot holds its value, by `send`; the place was just left.
            unsafe { ptr::copy_nonoverlapping(sender.slot().cast::<T>(), place, 1) };
            return Ok(sender.g());
        }
        if let Some(sender) = state.senders.fire_next() {
            self.publish_waiters(state);
            // SAFETY: as above; slot — promised by the caller.
            unsafe { ptr::copy_nonoverlapping(sender.slot().cast::<T>(), slot, 1) };
            return Ok(sender.g());
        }
        Err(if self.closed.load(Ordering::Relaxed) {
            ChanError::Closed
        } else {
            ChanError::WouldBlock
        })
    }

    /// Shows those without the lock who waits.
    #[inline]
    pub(super) fn publish_waiters(&self, state: &State) {
        self.senders_wait.store(!state.senders.is_empty(), Ordering::Relaxed);
        self.receivers_wait.store(!state.receivers.is_empty(), Ordering::Relaxed);
    }

    /// As [`Chan::send_now`] or [`Chan::receive_now`].
    ///
    /// # Safety
    /// - **held**: by the caller.
    /// - **slot**: holds the value to be sent, which is not the caller's any more after `Ok`; or is the
    ///   place for one.
    #[inline(always)]
    pub(crate) unsafe fn transfer_now(
        &self,
        to: Direction,
        slot: *mut T,
    ) -> Result<Option<&'static G>, ChanError> {
        match to {
            // SAFETY: held, value — promised by the caller.
            Direction::Send => unsafe { self.send_now(slot) },
            // SAFETY: held, slot — promised by the caller.
            Direction::Receive => unsafe { self.receive_now(slot) },
        }
    }

    /// Does it, or waits until somebody else has. False: it is closed.
    ///
    /// # Safety
    /// - **slot**: as for [`Chan::transfer_now`], if this is true.
    #[inline(always)]
    unsafe fn transfer_or_wait(&self, to: Direction, slot: *mut T) -> bool {
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — above; slot — promised by the caller.
        match unsafe { self.transfer_now(to, slot) } {
            Ok(g) => {
                self.unlock_and_ready(inside, g);
                true
            }
            Err(ChanError::Closed) => {
                self.unlock_and_ready(inside, None);
                false
            }
            // SAFETY: held — above; slot — promised by the caller.
            Err(ChanError::WouldBlock) => unsafe { self.wait(inside, to, slot.cast()) },
        }
    }

    /// Does it if that can be done at once.
    ///
    /// # Safety
    /// - **slot**: as for [`Chan::transfer_now`].
    #[inline(always)]
    unsafe fn try_transfer(&self, to: Direction, slot: *mut T) -> Result<(), ChanError> {
        if !self.seems_ready(to) {
            return Err(ChanError::WouldBlock);
        }
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — above; slot — promised by the caller.
        let done = unsafe { self.transfer_now(to, slot) };
        self.unlock_and_ready(inside, *done.as_ref().unwrap_or(&None));
        done.map(drop)
    }

    /// Sends, or waits until somebody takes it. The value again: it is closed.
    /// Go: chansend.
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        let mut value = MaybeUninit::new(value);
        // SAFETY: slot — the value; not used again if it was sent.
        let sent = unsafe { self.transfer_or_wait(Direction::Send, value.as_mut_ptr()) };
        // SAFETY: not sent: nobody has taken it.
        if sent { Ok(()) } else { Err(unsafe { value.assume_init() }) }
    }

    /// Receives, or waits for a value. `None`: it is closed, and empty.
    /// Go: chanrecv.
    pub(crate) fn receive(&self) -> Option<T> {
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: slot — ours.
        let received = unsafe { self.transfer_or_wait(Direction::Receive, slot.as_mut_ptr()) };
        // SAFETY: received: somebody has written it.
        received.then(|| unsafe { slot.assume_init() })
    }

    /// As [`Chan::send`], until `when`. The value again: it is closed, or the time is over.
    pub(crate) fn send_until(&self, value: T, when: u64) -> Result<(), (T, ChanError)> {
        let mut value = MaybeUninit::new(value);
        // SAFETY: slot — the value; not used again if it was sent.
        let sent = unsafe { self.transfer_until(Direction::Send, value.as_mut_ptr(), when) };
        // SAFETY: not sent: nobody has taken it.
        sent.map_err(|why| (unsafe { value.assume_init() }, why))
    }

    /// As [`Chan::receive`], until `when`.
    pub(crate) fn receive_until(&self, when: u64) -> Result<T, ChanError> {
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: slot — ours.
        unsafe { self.transfer_until(Direction::Receive, slot.as_mut_ptr(), when) }?;
        // SAFETY: received: somebody has written it.
        Ok(unsafe { slot.assume_init() })
    }

    /// Gives the lock back, and makes somebody ready.
    #[inline]
    pub(super) fn unlock_and_ready(&self, inside: RuntimeGuard, g: Option<&'static G>) {
        // SAFETY: held — by every caller.
        unsafe { self.unlock() };
        if let Some(g) = g {
            inside.ready(g);
        }
    }

    /// Closes it: everyone who waits is told. False if it was closed.
    /// Go: closechan.
    pub(crate) fn close(&self) -> bool {
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — above.
        let state = unsafe { self.state() };
        // PAIR chan-closed: publishes what this one did before.
        let first = !self.closed.swap(true, Ordering::AcqRel);
        let mut waiting = GList::new();
        while let Some(taken) = state.receivers.fire_next().or_else(|| state.senders.fire_next()) {
            taken.mark_woken_by_close();
            if let Some(g) = taken.g() {
                waiting.push_back(g);
            }
        }
        while let Some(g) = self.notify_async(state) {
            waiting.push_back(g);
        }
        self.publish_waiters(state);
        // SAFETY: held — above.
        unsafe { self.unlock() };
        while let Some(g) = waiting.pop_front() {
            inside.ready(g);
        }
        first
    }

    /// Takes out all values that are in the ring: for the last receiver, who then drops them.
    pub(crate) fn drain(&self) -> Vec<T> {
        // Memory before the lock; nothing is sent any more, so it gets no more.
        let mut values = Vec::with_capacity(self.len());
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — above.
        let state = unsafe { self.state() };
        let len = self.len.swap(0, Ordering::Relaxed);
        debug_assert!(len <= values.capacity());
        for nth in 0..len {
            // SAFETY: a value is there, and is taken out: `len` is 0.
            values.push(unsafe { self.place(state.head, nth).read() });
        }
        self.unlock_and_ready(inside, None);
        values
    }

    /// Whether it seems that something can be done at once, without the lock.
    #[inline]
    pub(crate) fn seems_ready(&self, to: Direction) -> bool {
        let ready = match (to, self.cap()) {
            (Direction::Send, 0) => self.receivers_wait.load(Ordering::Relaxed),
            (Direction::Send, cap) => self.len() < cap,
            (Direction::Receive, 0) => self.senders_wait.load(Ordering::Relaxed),
            (Direction::Receive, _) => self.len() > 0,
        };
        ready || self.is_closed()
    }

    /// Sends if that can be done at once.
    /// Go: chansend(block = false).
    pub(crate) fn try_send(&self, value: T) -> Result<(), (T, ChanError)> {
        let mut value = MaybeUninit::new(value);
        // SAFETY: slot — the value; not used again if it was sent.
        let sent = unsafe { self.try_transfer(Direction::Send, value.as_mut_ptr()) };
        // SAFETY: not sent: nobody has taken it.
        sent.map_err(|why| (unsafe { value.assume_init() }, why))
    }

    /// Receives if that can be done at once.
    /// Go: chanrecv(block = false).
    pub(crate) fn try_receive(&self) -> Result<T, ChanError> {
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: slot — ours.
        unsafe { self.try_transfer(Direction::Receive, slot.as_mut_ptr()) }?;
        // SAFETY: received: it was written.
        Ok(unsafe { slot.assume_init() })
    }
}

impl<T> Drop for Chan<T> {
    fn drop(&mut self) {
        drop(self.drain());
    }
}

impl State {
    const fn new() -> State {
        let (senders, receivers) = (WaitQueue::new(), WaitQueue::new());
        State { head: 0, senders, receivers, async_waiters: AsyncWaiters::new() }
    }

    #[inline]
    pub(super) fn queue(&mut self, direction: Direction) -> &mut WaitQueue {
        match direction {
            Direction::Send => &mut self.senders,
            Direction::Receive => &mut self.receivers,
        }
    }
}
