//! A P's own queue of runnable Gs: its P pushes, anyone may take.
//!
//! A ring of `CAP` slots between two counters that only grow (and wrap), and one place before them:
//! the G to run next. One producer, the owner; takers are the owner and thieves.
//!
//! A taker reads the slot *before* it wins the right to it, so slots are atomics: a racing read of a
//! plain cell would be undefined even though the value is dropped.
//!
//! Owner: 1. reads `head`, to see room; 2. writes the slot; 3. publishes it by `tail`.
//! Taker: 1. reads `head`, then `tail`; 2. reads slots; 3. wins them by moving `head`, or starts over.
//!
//! The owner cannot overwrite a slot that a taker is still to win: it only writes where `head` has
//! passed, and the taker that read such a slot too early fails at step 3.

use crate::sys::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ptr;

/// Go's size of a local queue.
/// Go: len(p.runq).
pub(crate) const CAPACITY: usize = 256;

/// See the top of this file. The queue never looks into what it holds.
pub(crate) struct RunQueue<T: 'static, const CAP: usize> {
    head: AtomicU32,
    tail: AtomicU32,
    run_next: AtomicPtr<T>,
    /// How often the owner took what was to run next: a thief that sees it grow leaves that be.
    run_next_takes: AtomicU32,
    slots: [AtomicPtr<T>; CAP],
}

/// Whether a G goes on with the time slice of whoever made it ready.
/// Go: inheritTime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeSlice {
    /// It came from `run_next`: the two share one slice, so a pair cannot keep others waiting.
    Inherited,
    /// It starts a new one.
    New,
}

impl<T: 'static, const CAP: usize> RunQueue<T, CAP> {
    pub(crate) fn new() -> RunQueue<T, CAP> {
        const { assert!(CAP.is_power_of_two() && CAP >= 2, "counters wrap over the slots") };
        RunQueue {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            run_next: AtomicPtr::new(ptr::null_mut()),
            run_next_takes: AtomicU32::new(0),
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// An empty queue whose counters are about to wrap.
    #[cfg(test)]
    pub(crate) fn starting_at(count: u32) -> RunQueue<T, CAP> {
        let queue = RunQueue::new();
        queue.head.store(count, Ordering::Relaxed);
        queue.tail.store(count, Ordering::Relaxed);
        queue
    }

    fn slot(&self, count: u32) -> &AtomicPtr<T> {
        &self.slots[count as usize & (CAP - 1)]
    }

    /// Makes `g` the next to run; what was to run next comes back, to be pushed. Owner only.
    /// Go: runqput(next = true).
    #[inline]
    pub(crate) fn push_next(&self, g: &'static T) -> Option<&'static T> {
        let new = ptr::from_ref(g).cast_mut();
        // PAIR run-next: publishes `g`; sees what was published there before.
        let kicked = self.run_next.swap(new, Ordering::AcqRel);
        // SAFETY: only references are ever stored, and they are 'static.
        unsafe { kicked.as_ref() }
    }

    /// Appends `g`, unless the queue is full. Owner only.
    /// Go: runqput(next = false).
    #[inline]
    pub(crate) fn push(&self, g: &'static T) -> bool {
        // PAIR runq-head: a slot that takers have passed may be written again.
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(head) as usize >= CAP {
            return false;
        }
        self.slot(tail).store(ptr::from_ref(g).cast_mut(), Ordering::Relaxed);
        // PAIR runq-tail: publishes the slot stored above.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the older half out of a full queue; how many it was, or 0 if it is not full any more:
    /// then there is room. Owner only.
    /// Go: runqputslow, up to globrunqputbatch.
    pub(crate) fn take_half(&self, into: &mut [Option<&'static T>; CAP]) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        if (self.tail.load(Ordering::Relaxed).wrapping_sub(head) as usize) < CAP {
            return 0;
        }
        for (offset, place) in into[..CAP / 2].iter_mut().enumerate() {
            let g = self.slot(head.wrapping_add(offset as u32)).load(Ordering::Relaxed);
            // SAFETY: only references are ever stored, and they are 'static.
            *place = unsafe { g.as_ref() };
        }
        if self.advance_head(head, (CAP / 2) as u32) { CAP / 2 } else { 0 }
    }

    /// Moves `head` by `count`, if it is where it was.
    fn advance_head(&self, head: u32, count: u32) -> bool {
        let passed = head.wrapping_add(count);
        // PAIR runq-head: the slots were read before they may be written again.
        self.head.compare_exchange(head, passed, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The next G. Owner only.
    /// Go: runqget.
    #[inline]
    pub(crate) fn take(&self) -> Option<(&'static T, TimeSlice)> {
        match self.take_run_next() {
            Some(g) => Some((g, TimeSlice::Inherited)),
            None => self.take_first().map(|g| (g, TimeSlice::New)),
        }
    }

    /// The one to run next. Owner only.
    #[inline]
    pub(crate) fn take_run_next(&self) -> Option<&'static T> {
        let next = self.run_next.load(Ordering::Relaxed);
        // One try: only a thief can be quicker, and then the place is empty.
        if next.is_null() || !self.claim_run_next(next) {
            return None;
        }
        self.run_next_takes.store(self.run_next_takes().wrapping_add(1), Ordering::Relaxed);
        // SAFETY: only references are ever stored, and they are 'static.
        Some(unsafe { &*next })
    }

    /// The oldest G of the ring. Owner only.
    #[inline]
    pub(crate) fn take_first(&self) -> Option<&'static T> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            let tail = self.tail.load(Ordering::Relaxed);
            if head == tail {
                return None;
            }
            let g = self.slot(head).load(Ordering::Relaxed);
            if self.advance_head(head, 1) {
                // SAFETY: only references are ever stored, and they are 'static.
                return Some(unsafe { &*g });
            }
        }
    }

    fn claim_run_next(&self, next: *mut T) -> bool {
        let none = ptr::null_mut();
        // PAIR run-next: sees what was published with it.
        self.run_next.compare_exchange(next, none, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Moves half of this queue, rounded up, oldest first, to `thief`'s, and returns the last of
    /// them, to be run. With none in the ring, takes the next one to run after `pause`, where one is
    /// given: its owner may be about to run it. Called by the owner of `thief`; takes no more than
    /// there is room.
    /// Go: runqsteal, runqgrab.
    pub(crate) fn steal_into(
        &self,
        thief: &RunQueue<T, CAP>,
        pause: Option<fn()>,
    ) -> Option<&'static T> {
        let tail = thief.tail.load(Ordering::Relaxed);
        // PAIR runq-head: a slot that takers have passed may be written again.
        let used = tail.wrapping_sub(thief.head.load(Ordering::Acquire));
        let room = CAP as u32 - used;
        let count = loop {
            // PAIR runq-head: not older than the slots that follow.
            let head = self.head.load(Ordering::Acquire);
            // PAIR runq-tail: the slots before it are published.
            let available = self.tail.load(Ordering::Acquire).wrapping_sub(head);
            let count = (available - available / 2).min(room);
            if count == 0 {
                return pause.and_then(|pause| self.steal_next(pause));
            }
            if count as usize > CAP / 2 {
                continue; // head and tail do not belong together
            }
            for offset in 0..count {
                let g = self.slot(head.wrapping_add(offset)).load(Ordering::Relaxed);
                thief.slot(tail.wrapping_add(offset)).store(g, Ordering::Relaxed);
            }
            if self.advance_head(head, count) {
                break count;
            }
        };
        let last = tail.wrapping_add(count - 1);
        let g = thief.slot(last).load(Ordering::Relaxed);
        if count > 1 {
            // PAIR runq-tail: publishes the slots stored above.
            thief.tail.store(last, Ordering::Release);
        }
        // SAFETY: only references are ever stored, and they are 'static.
        Some(unsafe { &*g })
    }

    /// Go: stealRunNextG in runqgrab.
    fn steal_next(&self, pause: fn()) -> Option<&'static T> {
        let next = self.run_next.load(Ordering::Relaxed);
        if next.is_null() {
            return None;
        }
        let turns = self.run_next_takes();
        pause();
        if self.run_next_takes() != turns {
            return None; // two that make each other ready: they are best left together
        }
        // SAFETY: only references are ever stored, and they are 'static.
        self.claim_run_next(next).then(|| unsafe { &*next })
    }

    /// How often the owner took what was to run next.
    #[inline]
    pub(crate) fn run_next_takes(&self) -> u32 {
        self.run_next_takes.load(Ordering::Relaxed)
    }

    /// Whether there is nothing to take. An answer about one moment: a G on its way from `run_next`
    /// to the ring is not missed, unless a thief has just taken the one that kicked it. So whoever
    /// pushes tells the others afterwards.
    /// Go: runqempty.
    pub(crate) fn is_empty(&self) -> bool {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            // PAIR runq-tail: not older than the look at `run_next` that follows.
            let tail = self.tail.load(Ordering::Acquire);
            // PAIR run-next: if it was kicked, the tail moves before.
            let next = self.run_next.load(Ordering::Acquire);
            if self.tail.load(Ordering::Relaxed) == tail {
                return head == tail && next.is_null();
            }
        }
    }

    /// How many Gs are in the ring; the one to run next is not counted.
    pub(crate) fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        tail.wrapping_sub(self.head.load(Ordering::Relaxed)) as usize
    }

    /// Whether a G is set to run next.
    pub(crate) fn has_run_next(&self) -> bool {
        !self.run_next.load(Ordering::Relaxed).is_null()
    }
}

impl<T, const CAP: usize> std::fmt::Debug for RunQueue<T, CAP> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunQueue")
            .field("len", &self.len())
            .field("has_next", &self.has_run_next())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "run_queue_tests.rs"]
mod tests;
