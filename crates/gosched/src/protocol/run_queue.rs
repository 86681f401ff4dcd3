//! The local queue of runnable Gs of a P: only the owner of the P pushes; the owner and thieves
//! take.
//!
//! The queue is a ring of `CAP` slots between two counters that only grow (and wrap), and one slot
//! outside the ring: `run_next`, the G to run next.
//!
//! A taker reads a slot *before* it wins the right to it, so slots are atomics: a racing read of a
//! plain cell would be undefined behavior, even though the value is discarded.
//!
//! - Owner: 1. reads `head`, to check for room; 2. writes the slot; 3. publishes it by `tail`.
//! - Taker: 1. reads `head`, then `tail`; 2. reads slots; 3. wins them by advancing `head`, or
//!   starts over.
//!
//! The owner cannot overwrite a slot that a taker can still win: the owner writes only slots that
//! `head` has passed, and a taker that read such a slot earlier fails at step 3.
//!
//! The queue never wakes an M, and never moves Gs to the global queue: its callers do.

use crate::sys::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ptr;

/// The capacity of a local queue, as in Go.
/// Go: len(p.runq).
pub(crate) const CAPACITY: usize = 256;

/// A run queue (see the top of this file). It never dereferences its items.
pub(crate) struct RunQueue<T: 'static, const CAP: usize> {
    head: AtomicU32,
    tail: AtomicU32,
    run_next: AtomicPtr<T>,
    /// Number of times the owner took `run_next`. A thief that sees the number change leaves
    /// `run_next` alone.
    run_next_takes: AtomicU32,
    slots: [AtomicPtr<T>; CAP],
}

/// What a thief has stolen.
#[derive(Debug)]
pub(crate) struct Stolen<T: 'static> {
    /// The last of the stolen Gs, to be run at once.
    pub(crate) g: &'static T,
    /// How many Gs were taken from the victim's ring; 0 if `g` was in `run_next`.
    pub(crate) count: u32,
    /// The position of the first of them in the victim's ring.
    pub(crate) position: u32,
    /// How many Gs the victim's ring held.
    pub(crate) len: u32,
    /// The position in the thief's ring from which the others are.
    pub(crate) to: u32,
}

/// Whether a G continues the time slice of the G that made it ready.
/// Go: inheritTime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeSlice {
    /// The G came from `run_next` and shares the slice, so that a pair of Gs cannot keep others
    /// waiting.
    Inherited,
    /// The G starts a new slice.
    New,
}

impl<T: 'static, const CAP: usize> RunQueue<T, CAP> {
    pub(crate) fn new() -> RunQueue<T, CAP> {
        const {
            assert!(
                CAP.is_power_of_two() && CAP >= 2,
                "CAP must be a power of two and at least 2: the counters wrap over the slots"
            )
        };
        RunQueue {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            run_next: AtomicPtr::new(ptr::null_mut()),
            run_next_takes: AtomicU32::new(0),
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Creates an empty queue whose counters start at `count`, to test that they wrap.
    #[cfg(test)]
    pub(crate) fn starting_at(count: u32) -> RunQueue<T, CAP> {
        let queue = RunQueue::new();
        queue.head.store(count, Ordering::Relaxed);
        queue.tail.store(count, Ordering::Relaxed);
        queue
    }

    /// Returns `head` and `tail`, the positions of the first and of the next G. Thieves may change
    /// `head` at any time.
    pub(crate) fn counters(&self) -> (u32, u32) {
        (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed))
    }

    fn slot(&self, count: u32) -> &AtomicPtr<T> {
        &self.slots[count as usize & (CAP - 1)]
    }

    /// Makes `g` the next to run. Returns the G that was next before, which the caller pushes.
    /// Owner only.
    /// Go: runqput(next = true).
    #[inline]
    pub(crate) fn push_next(&self, g: &'static T) -> Option<&'static T> {
        let new = ptr::from_ref(g).cast_mut();
        // PAIR run-next: publishes `g`; sees what was published with the previous G.
        let kicked = self.run_next.swap(new, Ordering::AcqRel);
        // SAFETY: only `'static` references are ever stored.
        unsafe { kicked.as_ref() }
    }

    /// Appends `g`. Returns false if the queue is full. Owner only.
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

    /// Takes the older half out of a full queue. Returns the number of Gs taken and the position of
    /// the first, or `None` if the queue is no longer full. Owner only.
    /// Go: runqputslow, up to globrunqputbatch.
    pub(crate) fn take_half(&self, into: &mut [Option<&'static T>; CAP]) -> Option<(usize, u32)> {
        let head = self.head.load(Ordering::Relaxed);
        if (self.tail.load(Ordering::Relaxed).wrapping_sub(head) as usize) < CAP {
            return None;
        }
        for (offset, place) in into[..CAP / 2].iter_mut().enumerate() {
            let g = self.slot(head.wrapping_add(offset as u32)).load(Ordering::Relaxed);
            // SAFETY: only `'static` references are ever stored.
            *place = unsafe { g.as_ref() };
        }
        self.advance_head(head, (CAP / 2) as u32).then_some((CAP / 2, head))
    }

    /// Advances the head counter by `count` if it still equals `head`. Returns whether it did.
    fn advance_head(&self, head: u32, count: u32) -> bool {
        let passed = head.wrapping_add(count);
        // PAIR runq-head: the slots were read before they can be written again.
        self.head.compare_exchange(head, passed, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the next G. Owner only.
    /// Go: runqget.
    #[inline]
    pub(crate) fn take(&self) -> Option<(&'static T, TimeSlice)> {
        match self.take_run_next() {
            Some(g) => Some((g, TimeSlice::Inherited)),
            None => self.take_first().map(|g| (g, TimeSlice::New)),
        }
    }

    /// Takes the G in `run_next`. Owner only.
    #[inline]
    pub(crate) fn take_run_next(&self) -> Option<&'static T> {
        let next = self.run_next.load(Ordering::Relaxed);
        // One attempt suffices: only a thief can be faster, and then `run_next` is empty.
        if next.is_null() || !self.claim_run_next(next) {
            return None;
        }
        self.run_next_takes.store(self.run_next_takes().wrapping_add(1), Ordering::Relaxed);
        // SAFETY: only `'static` references are ever stored.
        Some(unsafe { &*next })
    }

    /// Takes the oldest G of the ring. Owner only.
    #[inline]
    pub(crate) fn take_first(&self) -> Option<&'static T> {
        self.take_first_and_position().map(|(g, _)| g)
    }

    /// Takes the oldest G of the ring. Returns its position as well. Owner only.
    #[inline]
    pub(crate) fn take_first_and_position(&self) -> Option<(&'static T, u32)> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            let tail = self.tail.load(Ordering::Relaxed);
            if head == tail {
                return None;
            }
            let g = self.slot(head).load(Ordering::Relaxed);
            if self.advance_head(head, 1) {
                // SAFETY: only `'static` references are ever stored.
                return Some((unsafe { &*g }, head));
            }
        }
    }

    fn claim_run_next(&self, next: *mut T) -> bool {
        let none = ptr::null_mut();
        // PAIR run-next: sees what was published with the G.
        self.run_next.compare_exchange(next, none, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Moves half of this ring, rounded up, oldest first, to `thief`, except the last of these Gs,
    /// which is to be run at once. If the ring is empty and `pause` is given, calls `pause` and
    /// takes `run_next`: the owner may be about to run that G. Takes no more Gs than `thief` has
    /// room for. Called by the owner of `thief`.
    /// Go: runqsteal, runqgrab.
    pub(crate) fn steal_into(
        &self,
        thief: &RunQueue<T, CAP>,
        pause: Option<fn()>,
    ) -> Option<Stolen<T>> {
        let tail = thief.tail.load(Ordering::Relaxed);
        // PAIR runq-head: a slot that takers have passed may be written again.
        let used = tail.wrapping_sub(thief.head.load(Ordering::Acquire));
        let room = CAP as u32 - used;
        let (position, len, count) = loop {
            // PAIR runq-head: `tail` and the slots are read after `head`.
            let head = self.head.load(Ordering::Acquire);
            // PAIR runq-tail: the slots before `tail` are published.
            let available = self.tail.load(Ordering::Acquire).wrapping_sub(head);
            let count = (available - available / 2).min(room);
            if count == 0 {
                let g = pause.and_then(|pause| self.steal_next(pause))?;
                return Some(Stolen { g, count: 0, position: head, len: available, to: tail });
            }
            if count as usize > CAP / 2 {
                continue; // `head` and `tail` are from different moments
            }
            for offset in 0..count {
                let g = self.slot(head.wrapping_add(offset)).load(Ordering::Relaxed);
                thief.slot(tail.wrapping_add(offset)).store(g, Ordering::Relaxed);
            }
            if self.advance_head(head, count) {
                break (head, available, count);
            }
        };
        let last = tail.wrapping_add(count - 1);
        let g = thief.slot(last).load(Ordering::Relaxed);
        if count > 1 {
            // PAIR runq-tail: publishes the slots stored above.
            thief.tail.store(last, Ordering::Release);
        }
        // SAFETY: only `'static` references are ever stored.
        Some(Stolen { g: unsafe { &*g }, count, position, len, to: tail })
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
            return None; // two Gs that keep making each other ready stay on one P
        }
        // SAFETY: only `'static` references are ever stored.
        self.claim_run_next(next).then(|| unsafe { &*next })
    }

    /// Returns the number of times the owner took `run_next`.
    #[inline]
    pub(crate) fn run_next_takes(&self) -> u32 {
        self.run_next_takes.load(Ordering::Relaxed)
    }

    /// Returns whether there was nothing to take at one moment. A G that moves from `run_next` to
    /// the ring is not missed, unless a thief has taken the G that replaced it in the meantime. So
    /// a submitter must check for idle Ps after it has pushed.
    /// Go: runqempty.
    pub(crate) fn is_empty(&self) -> bool {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            // PAIR runq-tail: `run_next` is read after `tail`.
            let tail = self.tail.load(Ordering::Acquire);
            // PAIR run-next: if a G was kicked to the ring and its successor taken, the check below
            // sees the new tail.
            let next = self.run_next.load(Ordering::Acquire);
            if self.tail.load(Ordering::Relaxed) == tail {
                return head == tail && next.is_null();
            }
        }
    }

    /// Returns the number of Gs in the ring, without `run_next`.
    pub(crate) fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        tail.wrapping_sub(self.head.load(Ordering::Relaxed)) as usize
    }

    /// Returns whether there is a G in `run_next`.
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
