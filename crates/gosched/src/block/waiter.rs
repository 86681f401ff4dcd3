//! Waiting in queues: the record that channels, `select!`, locks and sleeping goroutines share.
//!
//! A [`Wakeup`] is one wait of one caller. A [`Waiter`] is the caller's entry in one queue. Both
//! live in the frame of the caller, so waiting does not allocate. A wakeup may have several waiters
//! (a `select!`) and a time limit. The first [`Wakeup::fire`] decides how the wait ends; every
//! later one returns [`Fired::TooLate`].
//!
//! The caller:
//! 1. enqueues its waiters, under the locks of the queues;
//! 2. parks; once its context is saved, calls [`Wakeup::commit`] and releases the locks;
//! 3. when it runs again, removes all its waiters, under the locks.
//!
//! Another thread, under the lock of a queue:
//! 1. removes a waiter;
//! 2. fires its wakeup, and stops here if the wakeup had already fired;
//! 3. transfers the value;
//! 4. makes the caller ready, after releasing the lock.
//!
//! A timer fires the wakeup, and makes the caller ready if the caller has committed. Otherwise the
//! commit fails, and the caller does not wait.
//!
//! Ownership: the links of a waiter belong to its queue, under the lock. Its slot belongs to the
//! caller until the caller commits and after the caller was made ready; in between it belongs to
//! the thread that fired the wakeup. The caller leaves its frame only after it has held the lock of
//! every queue again, so the holder of a lock may access the waiters in that queue. An uncontested
//! wakeup is the exception: the thread that makes the caller ready has already removed its only
//! waiter.
//!
//! This module never takes a lock, and never makes a G ready: its callers do both.

use super::linked_list::{Entry, LinkedList, Links};
use crate::gmp::g::G;
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::cell::Cell;
use std::mem::offset_of;
use std::ptr;

/// One wait: see the top of this file.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// [`NEW`], [`PARKED`], or [`FIRED`] plus the number of the waiter that fired.
    word: AtomicUsize,
    /// The G that waits. Null until [`Wakeup::commit`].
    g: Cell<*const G>,
    /// The wakeup has one waiter and no time limit, so only the thread that removes that waiter
    /// fires it.
    uncontested: bool,
}

/// The caller has not committed.
const NEW: usize = 0;
/// The caller has committed, and can be made ready.
const PARKED: usize = 1;
/// The wakeup has fired. The number of the waiter that fired is added to this.
const FIRED: usize = 2;

/// The result of [`Wakeup::fire`].
#[derive(Debug)]
pub(crate) enum Fired {
    /// The wakeup had already fired.
    TooLate,
    /// The caller had committed, and must be made ready.
    Ready(&'static G),
    /// The caller had not committed. Its commit fails, and it does not wait.
    NotParked,
}

impl Wakeup {
    /// Creates a wakeup with one waiter and no time limit.
    pub(crate) fn uncontested() -> Wakeup {
        Wakeup { word: AtomicUsize::new(NEW), g: Cell::new(ptr::null()), uncontested: true }
    }

    /// Creates a wakeup with any number of waiters, or with a time limit.
    pub(crate) fn contested() -> Wakeup {
        Wakeup { uncontested: false, ..Wakeup::uncontested() }
    }

    /// Publishes the caller, whose context is saved. Returns false if the wakeup has already fired:
    /// then the caller does not wait.
    #[inline]
    pub(crate) fn commit(&self, g: &'static G) -> bool {
        self.g.set(g);
        if self.uncontested {
            self.word.store(PARKED, Ordering::Relaxed);
            return true;
        }
        // PAIR wakeup: publishes the G to a timer; or sees what the timer did.
        self.word.compare_exchange(NEW, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the wait on behalf of waiter `arm`. Only the first call has an effect.
    /// Go: g.selectDone in waitq.dequeue.
    #[inline]
    pub(crate) fn fire(&self, arm: usize) -> Fired {
        if self.uncontested {
            self.word.store(FIRED + arm, Ordering::Relaxed);
            return self.ready();
        }
        let mut now = self.word.load(Ordering::Relaxed);
        while now < FIRED {
            // PAIR wakeup: sees the G; publishes what was done for the caller.
            match self.word.compare_exchange(now, FIRED + arm, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(PARKED) => return self.ready(),
                Ok(_) => return Fired::NotParked,
                Err(changed) => now = changed,
            }
        }
        Fired::TooLate
    }

    fn ready(&self) -> Fired {
        // SAFETY: null, or the G that `commit` published; Gs are never freed.
        match unsafe { self.g.get().as_ref() } {
            Some(g) => Fired::Ready(g),
            None => Fired::NotParked,
        }
    }

    /// The offset of the state word in a wakeup.
    pub(crate) const WORD_OFFSET: usize = offset_of!(Wakeup, word);
    /// The value of the state word while the caller is parked.
    pub(crate) const WORD_WHEN_PARKED: usize = PARKED;

    /// Returns the number of the waiter that fired, or `None` if the wakeup has not fired. Called
    /// by the caller when it runs again.
    pub(crate) fn fired(&self) -> Option<usize> {
        // PAIR wakeup: sees what was done for the caller.
        self.word.load(Ordering::Acquire).checked_sub(FIRED)
    }
}

/// An entry in a queue: see the top of this file.
/// Go: sudog.
#[derive(Debug)]
pub struct Waiter {
    links: Links<Waiter>,
    wakeup: *const Wakeup,
    /// The number of this waiter among those of its wakeup.
    arm: usize,
    /// The address of the value to send, of the place for the received value, or of a ticket.
    slot: Cell<*mut ()>,
    /// The wait ended because the channel was closed, without a transfer.
    woken_by_close: Cell<bool>,
    /// The address of the words that record what can end the wait, for `wait_record`. Null if there
    /// are none.
    holders: Cell<*const ()>,
}

// SAFETY: same — always this field, and only the queue's list accesses it.
unsafe impl Entry for Waiter {
    #[inline(always)]
    fn links(&self) -> &Links<Waiter> {
        &self.links
    }
}

impl Waiter {
    /// The offset of `holders` in a waiter.
    pub(crate) const HOLDERS_OFFSET: usize = offset_of!(Waiter, holders);

    /// Creates waiter number `arm` of `wakeup`. The waiter must not outlive the wakeup.
    pub(crate) fn new(wakeup: &Wakeup, arm: usize, slot: *mut ()) -> Waiter {
        Waiter {
            links: Links::new(),
            wakeup,
            arm,
            slot: Cell::new(slot),
            woken_by_close: Cell::new(false),
            holders: Cell::new(ptr::null()),
        }
    }

    /// Sets the address of the words that record what can end the wait: see `wait_record`.
    #[inline]
    pub(crate) fn set_holders(&self, on: *const ()) {
        self.holders.set(on);
    }

    /// Returns whether the wait ended because the channel was closed. Called by the caller after
    /// the wakeup has fired.
    pub(crate) fn is_woken_by_close(&self) -> bool {
        self.woken_by_close.get()
    }

    fn wakeup(&self) -> &Wakeup {
        // SAFETY: the waiter and its wakeup are in one frame, which is alive as long as the waiter
        // is.
        unsafe { &*self.wakeup }
    }
}

/// The G, if any, that the owner of the lock must make ready after releasing the lock.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct ToReady(pub(crate) Option<&'static G>);

/// A waiter that was removed from its queue and whose wakeup was fired. Its slot belongs to the
/// owner of this value.
#[derive(Debug)]
pub(crate) struct Taken {
    waiter: *const Waiter,
    g: Option<&'static G>,
}

impl Taken {
    fn waiter(&self) -> &Waiter {
        // SAFETY: the frame of the waiter stays until its G is made ready, which consumes `self`.
        unsafe { &*self.waiter }
    }

    /// Returns the address of the value to send, of the place for the received value, or of a
    /// ticket.
    pub(crate) fn slot(&self) -> *mut () {
        self.waiter().slot.get()
    }

    /// Records that the wait ended because the channel was closed.
    pub(crate) fn mark_woken_by_close(&self) {
        self.waiter().woken_by_close.set(true);
    }

    /// Returns the G to make ready after the lock is released. The waiter must not be accessed
    /// after this.
    pub(crate) fn g(self) -> Option<&'static G> {
        self.g
    }
}

/// A queue of waiters, first in, first out. Protected by a lock of its owner.
/// Go: waitq.
#[derive(Debug)]
pub(crate) struct WaitQueue(LinkedList<Waiter>);

impl Default for WaitQueue {
    fn default() -> WaitQueue {
        WaitQueue::new()
    }
}

impl WaitQueue {
    pub(crate) const fn new() -> WaitQueue {
        WaitQueue(LinkedList::new())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a waiter, which must stay in place until it is removed.
    /// Go: waitq.enqueue.
    ///
    /// # Safety
    /// - **frame**: before the frame of the waiter ends, its owner acquires the lock again and
    ///   calls [`WaitQueue::remove`]; or the waiter is the only one of its wakeup, and the thread
    ///   that removed it has made its owner ready.
    #[inline]
    pub(crate) unsafe fn push(&mut self, waiter: &Waiter) {
        // SAFETY: alive — frame.
        unsafe { self.0.push_back(waiter) };
    }

    /// Like [`WaitQueue::push`], but at the front of the queue.
    ///
    /// # Safety
    /// - **frame**: as for [`WaitQueue::push`].
    pub(crate) unsafe fn push_front(&mut self, waiter: &Waiter) {
        // SAFETY: alive — frame.
        unsafe { self.0.push_front(waiter) };
    }

    /// Removes a waiter, if it is in the queue.
    /// Go: waitq.dequeueSudoG.
    #[inline]
    pub(crate) fn remove(&mut self, waiter: &Waiter) {
        self.0.remove(waiter);
    }

    /// Removes waiters from the front until it finds one whose wakeup has not fired, and fires that
    /// wakeup. Returns `None` if there is no such waiter.
    /// Go: waitq.dequeue.
    #[inline]
    pub(crate) fn fire_next(&mut self) -> Option<Taken> {
        while !self.is_empty() {
            let taken = self.fire_first();
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// Removes the first waiter and fires its wakeup. Returns `None` if the queue is empty or the
    /// wakeup had already fired.
    #[inline]
    pub(crate) fn fire_first(&mut self) -> Option<Taken> {
        // SAFETY: frame — the waiters in the queue are alive.
        let waiter = unsafe { self.0.first().as_ref() }?;
        self.0.remove(waiter);
        match waiter.wakeup().fire(waiter.arm) {
            Fired::TooLate => None,
            Fired::Ready(g) => Some(Taken { waiter, g: Some(g) }),
            Fired::NotParked => Some(Taken { waiter, g: None }),
        }
    }

    /// Returns the slot of the first waiter, where it stores the address of its ticket.
    pub(crate) fn first_ticket(&self) -> Option<*mut ()> {
        // SAFETY: frame — the waiters in the queue are alive.
        unsafe { self.0.first().as_ref() }.map(|waiter| waiter.slot.get())
    }
}
