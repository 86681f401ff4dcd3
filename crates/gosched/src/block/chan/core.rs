//! The core of a channel: a ring of values, a queue of waiting senders, a queue of waiting
//! receivers, and one lock.
//!
//! **Invariants, whenever the lock is free.** Receivers wait only while the ring is empty and no
//! sender waits. Senders wait only while the ring is full. A closed channel has no waiters.
//!
//! A value goes directly from a sender to a waiting receiver: one copy, into the receiver's frame.
//! If senders wait because the ring is full, a receiver takes the oldest value and moves the value
//! of the first waiting sender into the ring. Under the lock values are only copied: no user code
//! runs.
//!
//! `len`, `closed` and the flags may be read without the lock, as in Go's non-blocking operations:
//! the result "not ready" was true at some moment during the call.
//!
//! A channel never clones a value, and never drops a value under its lock.

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

/// A channel: see the top of this file.
/// Go: hchan.
pub(crate) struct Chan<T> {
    pub(super) lock: Lock<State>,
    ring: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Number of values in the ring. Written under the lock.
    len: AtomicUsize,
    /// Whether the channel is closed. Written under the lock.
    closed: AtomicBool,
    /// Whether a sender waits. Written under the lock.
    senders_wait: AtomicBool,
    /// Whether a receiver waits. Written under the lock.
    pub(super) receivers_wait: AtomicBool,
    /// Whether a future waits to receive. Written under the lock.
    pub(super) has_async_waiters: AtomicBool,
    pub(super) end_counts: EndCounts,
}

// SAFETY: each value moves from one thread to one other thread; everything else is under the lock
// or atomic.
unsafe impl<T: Send> Send for Chan<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Chan<T> {}

/// The part of a channel that the lock protects.
#[derive(Debug)]
pub(super) struct State {
    /// Index of the oldest value in the ring.
    head: usize,
    pub(super) senders: WaitQueue,
    receivers: WaitQueue,
    /// Futures that wait to receive.
    pub(super) async_waiters: AsyncWaiters,
}

/// Why a value was not sent or received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChanError {
    /// The operation would have to wait, or its time limit was reached.
    WouldBlock,
    /// The channel is closed and, for a receive, empty.
    Closed,
}

impl<T> Chan<T> {
    /// Offset of the counts of ends in a channel.
    pub(super) const END_COUNTS_OFFSET: usize = offset_of!(Chan<T>, end_counts);

    /// Creates a channel with `senders` senders and one receiver.
    /// Go: makechan.
    #[track_caller]
    pub(crate) fn new(cap: usize, senders: usize) -> Chan<T> {
        let mut ring = Vec::new();
        if ring.try_reserve_exact(cap).is_err() {
            panic!(
                "`chan({cap})`: not enough memory for that many values of {} bytes: use a smaller capacity",
                size_of::<T>()
            );
        }
        // SAFETY: the capacity was reserved above, and `MaybeUninit` values need no initialisation.
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
        // PAIR chan-closed: sees what the closer did before.
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the part that the lock protects.
    ///
    /// # Safety
    /// - **held**: the caller holds the lock, and no other reference to the state is in use.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it holds the lock")]
    pub(super) unsafe fn state(&self) -> &mut State {
        // SAFETY: held — promised by the caller.
        unsafe { self.lock.value() }
    }

    /// Returns the address of the `nth` value, counted from the oldest at index `head`.
    fn place(&self, head: usize, nth: usize) -> *mut T {
        let at = head + nth;
        let at = if at >= self.cap() { at - self.cap() } else { at };
        self.ring[at].get().cast()
    }

    /// Sends `*value` if that needs no wait. On success the value was moved out, and the caller
    /// makes the returned G ready after releasing the lock.
    /// Go: send, sendDirect where a receiver waits.
    ///
    /// # Safety
    /// - **held**: the caller holds the lock.
    /// - **value**: can be read; after `Ok` it no longer belongs to the caller.
    #[inline]
    pub(crate) unsafe fn send_now(&self, value: *const T) -> Result<Option<&'static G>, ChanError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(ChanError::Closed);
        }
        // SAFETY: held — promised by the caller.
        let state = unsafe { self.state() };
        if let Some(receiver) = state.receivers.fire_next() {
            self.publish_waiters(state);
            // SAFETY: value — promised by the caller; the slot of a waiting receiver is a place for
            // a `T`.
            unsafe { ptr::copy_nonoverlapping(value, receiver.slot().cast::<T>(), 1) };
            return Ok(receiver.g());
        }
        let len = self.len.load(Ordering::Relaxed);
        if len == self.cap() {
            return Err(ChanError::WouldBlock);
        }
        let place = self.place(state.head, len);
        // SAFETY: value — promised by the caller; no value is in that place of the ring.
        unsafe { ptr::copy_nonoverlapping(value, place, 1) };
        self.len.store(len + 1, Ordering::Relaxed);
        Ok(self.notify_async(state))
    }

    /// Receives into `*slot` if that needs no wait. The caller makes the returned G ready after
    /// releasing the lock.
    /// Go: recv, recvDirect where a sender waits.
    ///
    /// # Safety
    /// - **held**: the caller holds the lock.
    /// - **slot**: can be written.
    #[inline]
    pub(crate) unsafe fn receive_now(&self, slot: *mut T) -> Result<Option<&'static G>, ChanError> {
        // SAFETY: held — promised by the caller.
        let state = unsafe { self.state() };
        let len = self.len.load(Ordering::Relaxed);
        if len > 0 {
            let place = self.place(state.head, 0);
            // SAFETY: slot — promised by the caller; the place holds a value, which is moved out.
            unsafe { ptr::copy_nonoverlapping(place, slot, 1) };
            state.head = if state.head + 1 == self.cap() { 0 } else { state.head + 1 };
            let Some(sender) = state.senders.fire_next() else {
                self.len.store(len - 1, Ordering::Relaxed);
                return Ok(None);
            };
            self.publish_waiters(state);
            let place = self.place(state.head, len - 1);
            // SAFETY: the slot of a waiting sender holds its value; the place in the ring was freed
            // above.
            unsafe { ptr::copy_nonoverlapping(sender.slot().cast::<T>(), place, 1) };
            return Ok(sender.g());
        }
        if let Some(sender) = state.senders.fire_next() {
            self.publish_waiters(state);
            // SAFETY: the slot of a waiting sender holds its value; slot — promised by the caller.
            unsafe { ptr::copy_nonoverlapping(sender.slot().cast::<T>(), slot, 1) };
            return Ok(sender.g());
        }
        Err(if self.closed.load(Ordering::Relaxed) {
            ChanError::Closed
        } else {
            ChanError::WouldBlock
        })
    }

    /// Updates the flags that are read without the lock.
    #[inline]
    pub(super) fn publish_waiters(&self, state: &State) {
        self.senders_wait.store(!state.senders.is_empty(), Ordering::Relaxed);
        self.receivers_wait.store(!state.receivers.is_empty(), Ordering::Relaxed);
    }

    /// Calls [`Chan::send_now`] or [`Chan::receive_now`].
    ///
    /// # Safety
    /// - **held**: the caller holds the lock.
    /// - **slot**: holds the value to send, which no longer belongs to the caller after `Ok`; or is
    ///   the place for the received value.
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

    /// Transfers a value, and waits if necessary. Returns false if the channel is closed.
    ///
    /// # Safety
    /// - **slot**: as for [`Chan::transfer_now`], where true stands for `Ok`.
    #[inline(always)]
    unsafe fn transfer_or_wait(&self, to: Direction, slot: *mut T) -> bool {
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — locked above; slot — promised by the caller.
        match unsafe { self.transfer_now(to, slot) } {
            Ok(g) => {
                self.unlock_and_ready(inside, g);
                true
            }
            Err(ChanError::Closed) => {
                self.unlock_and_ready(inside, None);
                false
            }
            // SAFETY: held — locked above; slot — promised by the caller.
            Err(ChanError::WouldBlock) => unsafe { self.wait(inside, to, slot.cast()) },
        }
    }

    /// Transfers a value if that needs no wait.
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
        // SAFETY: held — locked above; slot — promised by the caller.
        let done = unsafe { self.transfer_now(to, slot) };
        self.unlock_and_ready(inside, *done.as_ref().unwrap_or(&None));
        done.map(drop)
    }

    /// Sends `value`, and waits if necessary. Returns the value as the error if the channel is
    /// closed.
    /// Go: chansend.
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        let mut value = MaybeUninit::new(value);
        // SAFETY: slot — holds the value, which is not used again if it was sent.
        let sent = unsafe { self.transfer_or_wait(Direction::Send, value.as_mut_ptr()) };
        // SAFETY: the value was not sent, so it is still here.
        if sent { Ok(()) } else { Err(unsafe { value.assume_init() }) }
    }

    /// Receives a value, and waits if necessary. Returns `None` if the channel is closed and empty.
    /// Go: chanrecv.
    pub(crate) fn receive(&self) -> Option<T> {
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: slot — a local variable.
        let received = unsafe { self.transfer_or_wait(Direction::Receive, slot.as_mut_ptr()) };
        // SAFETY: the value was received, so the slot was written.
        received.then(|| unsafe { slot.assume_init() })
    }

    /// Like [`Chan::send`], but waits until `when` at most. The error contains the value.
    pub(crate) fn send_until(&self, value: T, when: u64) -> Result<(), (T, ChanError)> {
        let mut value = MaybeUninit::new(value);
        // SAFETY: slot — holds the value, which is not used again if it was sent.
        let sent = unsafe { self.transfer_until(Direction::Send, value.as_mut_ptr(), when) };
        // SAFETY: the value was not sent, so it is still here.
        sent.map_err(|why| (unsafe { value.assume_init() }, why))
    }

    /// Like [`Chan::receive`], but waits until `when` at most.
    pub(crate) fn receive_until(&self, when: u64) -> Result<T, ChanError> {
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: slot — a local variable.
        unsafe { self.transfer_until(Direction::Receive, slot.as_mut_ptr(), when) }?;
        // SAFETY: the value was received, so the slot was written.
        Ok(unsafe { slot.assume_init() })
    }

    /// Releases the lock, and then makes `g` ready.
    #[inline(always)]
    pub(super) fn unlock_and_ready(&self, mut inside: RuntimeGuard, g: Option<&'static G>) {
        // SAFETY: held — by every caller.
        unsafe { self.unlock() };
        if let Some(g) = g {
            inside.ready(g);
        }
    }

    /// Closes the channel and makes all waiters ready. Returns false if the channel was already
    /// closed.
    /// Go: closechan.
    pub(crate) fn close(&self) -> bool {
        let mut inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — locked above.
        let state = unsafe { self.state() };
        // PAIR chan-closed: publishes what the closer did before.
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
        // SAFETY: held — locked above.
        unsafe { self.unlock() };
        while let Some(g) = waiting.pop_front() {
            inside.ready(g);
        }
        first
    }

    /// Removes all values from the ring and returns them, so that the caller drops them outside the
    /// lock.
    pub(crate) fn drain(&self) -> Vec<T> {
        // Allocates before taking the lock. The channel is closed or being dropped, so no value is
        // added.
        let mut values = Vec::with_capacity(self.len());
        let inside = sched::enter_runtime();
        self.lock();
        // SAFETY: held — locked above.
        let state = unsafe { self.state() };
        let len = self.len.swap(0, Ordering::Relaxed);
        debug_assert!(len <= values.capacity());
        for nth in 0..len {
            // SAFETY: the place holds a value, which is moved out once: `len` is already 0.
            values.push(unsafe { self.place(state.head, nth).read() });
        }
        self.unlock_and_ready(inside, None);
        values
    }

    /// Returns whether the operation seems possible without a wait. Does not take the lock.
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

    /// Sends `value` if that needs no wait. The error contains the value.
    /// Go: chansend(block = false).
    pub(crate) fn try_send(&self, value: T) -> Result<(), (T, ChanError)> {
        let mut value = MaybeUninit::new(value);
        // SAFETY: slot — holds the value, which is not used again if it was sent.
        let sent = unsafe { self.try_transfer(Direction::Send, value.as_mut_ptr()) };
        // SAFETY: the value was not sent, so it is still here.
        sent.map_err(|why| (unsafe { value.assume_init() }, why))
    }

    /// Receives a value if that needs no wait.
    /// Go: chanrecv(block = false).
    pub(crate) fn try_receive(&self) -> Result<T, ChanError> {
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: slot — a local variable.
        unsafe { self.try_transfer(Direction::Receive, slot.as_mut_ptr()) }?;
        // SAFETY: the value was received, so the slot was written.
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
