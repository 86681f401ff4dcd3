//! Waiting: one record for all that a goroutine or a thread can wait for.
//!
//! A [`Wakeup`] is one wait of one caller, a [`Waiter`] its place in one queue; both live in the frame that
//! waits, so waiting allocates nothing. A wakeup may have several waiters (a `select`), and a time limit;
//! the first to [`Wakeup::fire`] it decides what it waited for, all others find that they came too late.
//!
//! Caller: 1. puts its waiters into their queues, under the locks of those; 2. parks; once its context is
//! saved, says so ([`Wakeup::commit`]) and gives the locks back; 3. when it runs again, takes all its
//! waiters out, under the locks.
//! Others, under a queue's lock: 1. take a waiter out; 2. fire its wakeup; if that was the first: 3. hand
//! over the value; 4. make the caller ready, after the lock was given back.
//! A timer: fires the wakeup, and makes the caller ready if it had committed to park; if it had not, the caller finds
//! that there is nothing to wait for.
//!
//! Who owns what: a waiter's links are its queue's, under the lock. Its slot is the caller's before it
//! commits to park and after it was made ready, and in between whoever's who fired it. The caller cannot leave
//! the frame before it has had every queue's lock, so whoever holds one may look at the waiters in it.

#[cfg(not(loom))]
use crate::gmp::g::G;
#[cfg(loom)]
use crate::model::g::G;
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::cell::Cell;
use std::mem::offset_of;
use std::ptr;

/// One wait: see the top of this file.
#[derive(Debug)]
pub(crate) struct Wakeup {
    word: AtomicUsize,
    /// Who waits; from when it commits to park.
    g: Cell<*const G>,
    /// It has one waiter and no time limit: whoever takes that one out fires it, nobody else.
    uncontested: bool,
}

/// The caller has not committed to park.
const NEW: usize = 0;
/// It has, and can be made ready.
const PARKED: usize = 1;
/// And from here on, which of its waiters was fired.
const FIRED: usize = 2;

/// What came of [`Wakeup::fire`].
#[derive(Debug)]
pub(crate) enum Fired {
    /// Something else was first.
    TooLate,
    /// It has parked: to be made ready.
    Ready(&'static G),
    /// It has not parked: it will see for itself.
    NotParked,
}

impl Wakeup {
    /// With one waiter, and no time limit.
    pub(crate) fn uncontested() -> Wakeup {
        Wakeup { word: AtomicUsize::new(NEW), g: Cell::new(ptr::null()), uncontested: true }
    }

    /// With any number of waiters, or a time limit.
    pub(crate) fn contested() -> Wakeup {
        Wakeup { uncontested: false, ..Wakeup::uncontested() }
    }

    /// The caller's context is saved. False if it was fired already: it need not wait.
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

    /// It is over, by waiter `arm`: true for the first only.
    /// Go: g.selectDone in waitq.dequeue.
    #[inline]
    pub(crate) fn fire(&self, arm: usize) -> Fired {
        if self.uncontested {
            self.word.store(FIRED + arm, Ordering::Relaxed);
            return self.ready();
        }
        let mut now = self.word.load(Ordering::Relaxed);
        while now < FIRED {
            // PAIR wakeup: sees the G; publishes what was done for it.
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
        // SAFETY: parked, so it is a G; they are never freed.
        match unsafe { self.g.get().as_ref() } {
            Some(g) => Fired::Ready(g),
            None => Fired::NotParked,
        }
    }

    /// Where in a wakeup its state is, and which state means parked.
    pub(crate) const WORD_OFFSET: usize = offset_of!(Wakeup, word);
    pub(crate) const WORD_WHEN_PARKED: usize = PARKED;

    /// The waiter that was fired; asked by the caller when it runs again.
    pub(crate) fn fired(&self) -> Option<usize> {
        // PAIR wakeup: sees what was done for it.
        self.word.load(Ordering::Acquire).checked_sub(FIRED)
    }
}

/// A place in a queue: see the top of this file.
/// Go: sudog.
#[derive(Debug)]
pub struct Waiter {
    next: Cell<*const Waiter>,
    before: Cell<*const Waiter>,
    queued: Cell<bool>,
    wakeup: *const Wakeup,
    arm: usize,
    /// Where its value is, or is to be put.
    slot: Cell<*mut ()>,
    /// What it waited for did not happen, and never will.
    woken_by_close: Cell<bool>,
    /// What it waits for, for whoever looks (`wait_record`): where it is told who can end the wait.
    holders: Cell<*const ()>,
}

impl Waiter {
    /// Where in a waiter it is told what it waits for.
    pub(crate) const HOLDERS_OFFSET: usize = offset_of!(Waiter, holders);

    /// Number `arm` of a wakeup. It must not outlive that.
    pub(crate) fn new(wakeup: &Wakeup, arm: usize, slot: *mut ()) -> Waiter {
        Waiter {
            next: Cell::new(ptr::null()),
            before: Cell::new(ptr::null()),
            queued: Cell::new(false),
            wakeup,
            arm,
            slot: Cell::new(slot),
            woken_by_close: Cell::new(false),
            holders: Cell::new(ptr::null()),
        }
    }

    /// It waits for this: see `wait_record`.
    #[inline]
    pub(crate) fn set_holders(&self, on: *const ()) {
        self.holders.set(on);
    }

    /// Whether what it waited for will never be: asked by the caller when it was fired.
    pub(crate) fn is_woken_by_close(&self) -> bool {
        self.woken_by_close.get()
    }

    fn wakeup(&self) -> &Wakeup {
        // SAFETY: both are in one frame, which is alive while the waiter is.
        unsafe { &*self.wakeup }
    }
}

/// Whom to make ready, when the lock was given back.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct ToReady(pub(crate) Option<&'static G>);

/// A waiter that was taken out of its queue and fired: its slot is the holder's.
#[derive(Debug)]
pub(crate) struct Taken {
    waiter: *const Waiter,
    g: Option<&'static G>,
}

impl Taken {
    fn waiter(&self) -> &Waiter {
        // SAFETY: its caller waits until it is made ready, which takes this away.
        unsafe { &*self.waiter }
    }

    /// Where its value is, or is to be put.
    pub(crate) fn slot(&self) -> *mut () {
        self.waiter().slot.get()
    }

    /// What it waited for will never be.
    pub(crate) fn mark_woken_by_close(&self) {
        self.waiter().woken_by_close.set(true);
    }

    /// Whom to make ready, when the lock was given back. The waiter is not touched any more.
    pub(crate) fn g(self) -> Option<&'static G> {
        self.g
    }
}

/// First come, first served. Under a lock.
/// Go: waitq.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    first: *const Waiter,
    last: *const Waiter,
}

// SAFETY: waiters are used under the queue's lock.
unsafe impl Send for WaitQueue {}

impl Default for WaitQueue {
    fn default() -> WaitQueue {
        WaitQueue::new()
    }
}

impl WaitQueue {
    pub(crate) const fn new() -> WaitQueue {
        WaitQueue { first: ptr::null(), last: ptr::null() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds a waiter, which stays where it is until it was taken out.
    /// Go: waitq.enqueue.
    ///
    /// # Safety
    /// - **frame**: the caller has the lock again before the waiter's frame ends, and calls
    ///   [`WaitQueue::remove`]; or was made ready by whoever took the only waiter of a wakeup out.
    #[inline]
    pub(crate) unsafe fn push(&mut self, waiter: &Waiter) {
        waiter.next.set(ptr::null());
        waiter.before.set(self.last);
        waiter.queued.set(true);
        // SAFETY: frame — those in the queue are alive.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.set(waiter),
            None => self.first = waiter,
        }
        self.last = waiter;
    }

    /// As [`WaitQueue::push`], before all others.
    ///
    /// # Safety
    /// - **frame**: as there.
    pub(crate) unsafe fn push_front(&mut self, waiter: &Waiter) {
        waiter.before.set(ptr::null());
        waiter.next.set(self.first);
        waiter.queued.set(true);
        // SAFETY: frame — those in the queue are alive.
        match unsafe { self.first.as_ref() } {
            Some(first) => first.before.set(waiter),
            None => self.last = waiter,
        }
        self.first = waiter;
    }

    /// Takes a waiter out, if it is in.
    /// Go: waitq.dequeueSudoG.
    #[inline]
    pub(crate) fn remove(&mut self, waiter: &Waiter) {
        if !waiter.queued.replace(false) {
            return;
        }
        let (before, next) = (waiter.before.get(), waiter.next.get());
        // SAFETY: frame — those in the queue are alive.
        match unsafe { before.as_ref() } {
            Some(before) => before.next.set(next),
            None => self.first = next,
        }
        // SAFETY: frame — as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.before.set(before),
            None => self.last = before,
        }
    }

    /// Takes the first waiter out whose wakeup has not fired yet.
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

    /// Takes the first waiter out. `None` also if its wakeup had fired.
    #[inline]
    pub(crate) fn fire_first(&mut self) -> Option<Taken> {
        // SAFETY: frame — those in the queue are alive.
        let waiter = unsafe { self.first.as_ref() }?;
        self.remove(waiter);
        match waiter.wakeup().fire(waiter.arm) {
            Fired::TooLate => None,
            Fired::Ready(g) => Some(Taken { waiter, g: Some(g) }),
            Fired::NotParked => Some(Taken { waiter, g: None }),
        }
    }

    /// What the first waiter brought.
    pub(crate) fn first_ticket(&self) -> Option<*mut ()> {
        // SAFETY: frame — those in the queue are alive.
        unsafe { self.first.as_ref() }.map(|waiter| waiter.slot.get())
    }
}
