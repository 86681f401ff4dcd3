//! Where a timer is: in a heap, or in none. Its owner stops the timer while another thread fires
//! it.
//!
//! The word is the address of the heap that contains the timer, or null. It changes only under the
//! lock of that heap. A timer in no heap belongs to its owner, which may free it or put it into a
//! heap.
//!
//! - Owner that starts the timer, under the heap's lock: 1. inserts the timer's entry; 2. stores
//!   the heap ([`enter`](TimerPlace::enter)).
//! - Firing thread, under the heap's lock: 1. fires the timer; 2. removes the timer's entry; 3.
//!   stores null ([`fire`](TimerPlace::fire)).
//! - Owner that stops the timer: 1. reads the heap, and is done if there is none; 2. locks that
//!   heap; 3. reads the heap again, and starts over if it is another one; 4. removes the entry, and
//!   stores null ([`stop`](TimerPlace::stop)).
//!
//! Why a timer either fires or is stopped: both sides hold the lock of the heap that contains the
//! timer. Why no thread uses a timer that its owner has stopped: the firing thread stores null as
//! its last access to the timer.
//!
//! This module never locks a heap and never changes one: its callers do both.

use crate::sys::atomic::{AtomicPtr, Ordering, const_fn};
use std::ptr;

/// The heap that contains a timer, or none (see the top of this file).
#[derive(Debug)]
pub(crate) struct TimerPlace<H: 'static>(AtomicPtr<H>);

/// What becomes of a timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFire {
    /// The timer is still in its heap, because it will fire again.
    Stays,
    /// The timer's entry was removed.
    Leaves,
}

impl<H: 'static> TimerPlace<H> {
    const_fn! {
        /// Creates the place of a timer that is in no heap.
        pub(crate) fn new() -> TimerPlace<H> {
            TimerPlace(AtomicPtr::new(ptr::null_mut()))
        }
    }

    /// Performs step 2 of an owner that starts the timer. Called under the lock of `heap`.
    #[inline]
    pub(crate) fn enter(&self, heap: &'static H) {
        // PAIR timer-heap: publishes what the heap has stored in the timer.
        self.0.store(ptr::from_ref(heap).cast_mut(), Ordering::Release);
    }

    /// Calls `fire`, which performs steps 1 and 2 of a firing thread, and then performs step 3 if
    /// the timer leaves its heap. Called under the heap's lock.
    #[inline]
    pub(crate) fn fire(&self, fire: impl FnOnce() -> AfterFire) {
        if fire() == AfterFire::Leaves {
            self.leave_after_fire();
        }
    }

    /// Performs step 3 of a firing thread.
    #[inline]
    pub(crate) fn leave_after_fire(&self) {
        // PAIR timer-heap: from here on the owner may free the timer.
        self.0.store(ptr::null_mut(), Ordering::Release);
    }

    /// Stops the timer: `lock` locks a heap, and `remove` removes the timer's entry from the locked
    /// heap. Returns false if the timer was in no heap. When this returns, no other thread uses the
    /// timer.
    #[inline]
    pub(crate) fn stop<L>(
        &self,
        lock: impl Fn(&'static H) -> L,
        remove: impl FnOnce(&'static H, &mut L),
    ) -> bool {
        loop {
            // PAIR timer-heap: the thread that fired the timer no longer uses it.
            let heap = self.0.load(Ordering::Acquire);
            // SAFETY: the pointer is null, or `enter` has stored it: a `'static` reference.
            let Some(heap) = (unsafe { heap.as_ref() }) else { return false };
            let mut locked = lock(heap);
            // The timer may have fired meanwhile, and may even be in another heap.
            if !ptr::eq(self.0.load(Ordering::Relaxed), heap) {
                continue;
            }
            remove(heap, &mut locked);
            self.0.store(ptr::null_mut(), Ordering::Relaxed);
            return true;
        }
    }
}
