//! Timers, and the heaps that hold them: one heap per P, and one for threads without a P.
//!
//! A timer is a record in a stack frame or a box. While it is in a heap, its fields belong to the
//! heap and are protected by the heap's lock. A timer fires under that lock, and leaves the heap
//! after it has fired. So an owner that finds its timer in no heap may free it:
//! `protocol::timer_place` describes how an owner stops a timer that another thread fires.
//!
//! The heaps are 4-ary, as in Go: a heap has fewer levels, and the children of a node are adjacent
//! in memory.
//!
//! Insertion must not allocate. If a heap is full, [`TimerHeap::insert`] returns the timer; the
//! caller then grows the heap outside the runtime ([`TimerHeap::grow`]) and retries.
//!
//! A heap never decides when its timers fire, and never makes a G ready: its callers do both.

use super::list::GList;
use crate::protocol::timer_place::{AfterFire, TimerPlace};
use crate::sys::Lock;
pub(crate) use crate::sys::clock::NEVER;
use gosched_fiber::NoPreempt;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Fires a timer. Called under the heap's lock: it must not allocate or panic. Pushes the Gs to
/// make ready onto `ready`. Returns the time at which the timer fires again, or `None`.
pub(crate) type Fire = unsafe fn(timer: &Timer, now: u64, ready: &mut GList) -> Option<u64>;

/// Returns whether firing the timer now would make a goroutine or a thread ready. Called under the
/// heap's lock: it must not allocate, panic or take another lock. The result `false` may be out of
/// date as soon as user code runs.
pub(crate) type CanWake = unsafe fn(timer: &Timer) -> bool;

/// The functions of one kind of timer.
#[derive(Debug)]
pub(crate) struct TimerKind {
    pub(crate) fire: Fire,
    /// The function that predicts whether firing makes a goroutine or a thread ready; `None` if
    /// firing always does.
    pub(crate) can_wake: Option<CanWake>,
}

/// A timer (see the top of this file).
/// Go: timer.
#[derive(Debug)]
pub(crate) struct Timer {
    /// The heap that contains the timer, or none. A timer in no heap does not fire.
    place: TimerPlace<TimerHeap>,
    /// Index of the timer in its heap. Protected by the heap's lock.
    index: Cell<usize>,
    kind: &'static TimerKind,
}

// SAFETY: the heap's lock protects the fields that are not atomic.
unsafe impl Sync for Timer {}
// SAFETY: as above.
unsafe impl Send for Timer {}

/// A timer that can be started: see [`Timer::placed`].
#[derive(Debug)]
pub(crate) struct PlacedTimer<'a>(&'a Timer);

impl Timer {
    /// Creates a timer that is in no heap.
    ///
    /// # Safety
    /// - **fire**: the functions of `kind` may be called with the timer, wherever it is stored,
    ///   until it is stopped.
    pub(crate) const unsafe fn new(kind: &'static TimerKind) -> Timer {
        Timer { place: TimerPlace::new(), index: Cell::new(0), kind }
    }

    /// Promises that the timer can be started.
    ///
    /// # Safety
    /// - **alive**: the timer is in no heap, and does not move until it has fired or is stopped.
    pub(crate) unsafe fn placed(&self) -> PlacedTimer<'_> {
        PlacedTimer(self)
    }

    /// Removes the timer from its heap. Returns false if it was in none. When this returns, no
    /// other thread uses the timer.
    pub(crate) fn stop(&self) -> bool {
        self.place.stop(
            |heap| {
                // SAFETY: here — `stop` drops the guard, and neither waits nor switches before.
                let no_preempt = unsafe { NoPreempt::new() };
                // A tuple drops its fields in order: the lock is released first.
                (heap.entries.lock(), no_preempt)
            },
            |heap, (entries, _)| heap.remove_at(entries, self.index.get()),
        )
    }
}

/// An entry of a heap: one timer and its time.
#[derive(Clone, Copy, Debug)]
struct Entry {
    when: u64,
    timer: *const Timer,
}

impl Entry {
    fn can_wake(&self) -> bool {
        // SAFETY: alive — timers in a heap are alive.
        let timer = unsafe { &*self.timer };
        // SAFETY: fire — promised by the creator of the timer; the timer is not stopped.
        timer.kind.can_wake.is_none_or(|can_wake| unsafe { can_wake(timer) })
    }
}

/// A min-heap of timers, ordered by time (see the top of this file).
/// Go: timers.
#[derive(Debug)]
pub(crate) struct TimerHeap {
    entries: Lock<Entries>,
    /// The time at which the first timer is due, in nanoseconds. Written under the lock.
    next: AtomicU64,
    /// Number of timers, for reports. Written under the lock.
    len: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Entries(Vec<Entry>);

// SAFETY: the timers are used only under the heap's lock.
unsafe impl Send for Entries {}

/// Number of children of a node.
/// Go: timerHeapN.
const ARITY: usize = 4;

/// Capacity of a heap when it first grows.
const INITIAL_CAPACITY: usize = 64;

impl TimerHeap {
    pub(crate) const fn new() -> TimerHeap {
        TimerHeap {
            entries: Lock::new(Entries(Vec::new())),
            next: AtomicU64::new(NEVER),
            len: AtomicUsize::new(0),
        }
    }

    /// Returns the time at which the first timer is due, or [`NEVER`] if there is none.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        // PAIR timer-next: sees the last change of the heap.
        self.next.load(Ordering::Acquire)
    }

    /// Returns the time at which the first timer that can make a goroutine or a thread ready is
    /// due, or [`NEVER`] if there is none. Must be called inside the runtime.
    pub(crate) fn next_waking(&self) -> u64 {
        if self.next() == NEVER {
            return NEVER;
        }
        self.entries.lock().first_waking(0, NEVER)
    }

    /// Returns whether the heap contains a timer that can make a goroutine or a thread ready. Must
    /// be called inside the runtime.
    pub(crate) fn has_waking(&self) -> bool {
        self.next() != NEVER && self.entries.lock().has_waking(0)
    }

    /// Returns the number of timers, which may already be out of date.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Inserts a timer that is due at `when`.
    /// Go: timers.addHeap.
    ///
    /// # Errors
    /// There is no room: call [`TimerHeap::grow`] and retry with the returned timer.
    pub(crate) fn insert<'t>(
        &'static self,
        PlacedTimer(timer): PlacedTimer<'t>,
        when: u64,
    ) -> Result<(), PlacedTimer<'t>> {
        let mut entries = self.entries.lock();
        if entries.0.len() == entries.0.capacity() {
            return Err(PlacedTimer(timer));
        }
        let index = entries.0.len();
        entries.0.push(Entry { when, timer });
        timer.index.set(index);
        timer.place.enter(self);
        entries.sift_up(index);
        self.publish_next(&entries);
        Ok(())
    }

    /// Makes room for more timers. Allocates, so it must not be called inside the runtime.
    pub(crate) fn grow(&self) {
        let len = self.with_entries(|entries| entries.0.len());
        let mut room = Vec::with_capacity((2 * len).max(INITIAL_CAPACITY));
        self.with_entries(|entries| {
            if entries.0.len() == entries.0.capacity() && room.capacity() > entries.0.len() {
                room.extend_from_slice(&entries.0);
                std::mem::swap(&mut entries.0, &mut room);
            }
        });
        drop(room);
    }

    /// Calls `f` under the lock, with preemption off.
    fn with_entries<R>(&self, f: impl FnOnce(&mut Entries) -> R) -> R {
        // SAFETY: here — `f` does not wait or switch.
        let no_preempt = unsafe { NoPreempt::new() };
        let result = f(&mut self.entries.lock());
        drop(no_preempt);
        result
    }

    /// Fires at most `most` timers that are due at `now`. Returns how many have fired. Must be
    /// called inside the runtime.
    /// Go: timers.run.
    pub(crate) fn fire_due(&self, now: u64, most: usize, ready: &mut GList) -> usize {
        let mut entries = self.entries.lock();
        let mut fired = 0;
        while fired < most
            && let Some(&Entry { when, timer }) = entries.0.first()
            && when <= now
        {
            fired += 1;
            // SAFETY: alive — timers in a heap are alive.
            let timer = unsafe { &*timer };
            timer.place.fire(|| {
                // SAFETY: fire — promised by the creator of the timer; the timer is not stopped.
                match unsafe { (timer.kind.fire)(timer, now, ready) } {
                    Some(when) => {
                        entries.0[0].when = when;
                        entries.sift_down(0);
                        AfterFire::Stays
                    }
                    None => {
                        self.remove_at(&mut entries, 0);
                        AfterFire::Leaves
                    }
                }
            });
        }
        self.publish_next(&entries);
        fired
    }

    fn remove_at(&self, entries: &mut Entries, index: usize) {
        entries.0.swap_remove(index);
        if let Some(moved) = entries.0.get(index) {
            let when = moved.when;
            entries.set_index(index);
            entries.sift_up(index);
            if entries.0[index].when == when {
                entries.sift_down(index);
            }
        }
        self.publish_next(entries);
    }

    /// Go: timers.updateMinWhenHeap.
    fn publish_next(&self, entries: &Entries) {
        self.len.store(entries.0.len(), Ordering::Relaxed);
        let next = entries.0.first().map_or(NEVER, |entry| entry.when);
        if self.next.load(Ordering::Relaxed) != next {
            // PAIR timer-next: publishes the change of the heap.
            self.next.store(next, Ordering::Release);
        }
    }
}

impl Entries {
    /// Returns the time of the earliest entry in the subtree of `index` that can make a goroutine
    /// or a thread ready, if that time is before `before`; otherwise returns `before`. The search
    /// does not descend below an entry that can, since its children are due later: if every timer
    /// can, only one entry is checked.
    fn first_waking(&self, index: usize, before: u64) -> u64 {
        match self.0.get(index).filter(|entry| entry.when < before) {
            None => before,
            Some(entry) if entry.can_wake() => entry.when,
            Some(_) => {
                self.children(index).fold(before, |before, child| self.first_waking(child, before))
            }
        }
    }

    /// Returns whether an entry in the subtree of `index` can make a goroutine or a thread ready.
    fn has_waking(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|entry| {
            entry.can_wake() || self.children(index).any(|child| self.has_waking(child))
        })
    }

    /// Returns the indices of the children of `index`.
    #[inline]
    fn children(&self, index: usize) -> Range<usize> {
        let first = index * ARITY + 1;
        first..(first + ARITY).min(self.0.len())
    }

    /// Stores `index` in the timer at that index.
    fn set_index(&self, index: usize) {
        // SAFETY: alive — timers in a heap are alive.
        unsafe { &*self.0[index].timer }.index.set(index);
    }

    /// Go: timers.siftUp.
    fn sift_up(&mut self, mut index: usize) {
        let entry = self.0[index];
        while index > 0 {
            let parent = (index - 1) / ARITY;
            if self.0[parent].when <= entry.when {
                break;
            }
            self.0[index] = self.0[parent];
            self.set_index(index);
            index = parent;
        }
        self.0[index] = entry;
        self.set_index(index);
    }

    /// Go: timers.siftDown.
    fn sift_down(&mut self, mut index: usize) {
        let entry = self.0[index];
        while let Some(least) = self.children(index).min_by_key(|&child| self.0[child].when) {
            if self.0[least].when >= entry.when {
                break;
            }
            self.0[index] = self.0[least];
            self.set_index(index);
            index = least;
        }
        self.0[index] = entry;
        self.set_index(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::ptr;

    /// A timer that logs its name when it fires.
    #[repr(C)]
    struct Logged {
        timer: Timer,
        name: u64,
        again: Cell<Option<u64>>,
        can_wake: Cell<bool>,
    }

    thread_local! {
        static LOG: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    impl Logged {
        fn new(name: u64) -> Box<Logged> {
            /// # Safety
            /// - **logged**: the timer is the first field of a `Logged`.
            unsafe fn fire(timer: &Timer, _now: u64, _ready: &mut GList) -> Option<u64> {
                // SAFETY: logged — promised by the caller.
                let logged = unsafe { &*ptr::from_ref(timer).cast::<Logged>() };
                LOG.with_borrow_mut(|log| log.push(logged.name));
                logged.again.take()
            }
            /// # Safety
            /// - **logged**: as for `fire`.
            unsafe fn can_wake(timer: &Timer) -> bool {
                // SAFETY: logged — promised by the caller.
                unsafe { &*ptr::from_ref(timer).cast::<Logged>() }.can_wake.get()
            }
            static KIND: TimerKind = TimerKind { fire, can_wake: Some(can_wake) };
            // SAFETY: fire — the timer becomes the first field of a `Logged`.
            let timer = unsafe { Timer::new(&KIND) };
            Box::new(Logged { timer, name, again: Cell::new(None), can_wake: Cell::new(true) })
        }
    }

    fn insert(heap: &'static TimerHeap, logged: &Logged, when: u64) {
        // SAFETY: alive — the timer is boxed, and it fires or is stopped before it is dropped.
        let mut timer = unsafe { logged.timer.placed() };
        while let Err(same) = heap.insert(timer, when) {
            timer = same;
            heap.grow();
        }
    }

    fn fired(heap: &TimerHeap, now: u64) -> Vec<u64> {
        while heap.fire_due(now, 7, &mut GList::new()) > 0 {}
        LOG.take()
    }

    fn heap() -> &'static TimerHeap {
        Box::leak(Box::new(TimerHeap::new()))
    }

    #[test]
    fn timers_fire_in_the_order_of_their_times() {
        let heap = heap();
        let mut random = 12345u64;
        let timers: Vec<_> = (0..1000).map(Logged::new).collect();
        let mut times = Vec::new();
        for timer in &timers {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let when = random >> 40;
            times.push((when, timer.name));
            insert(heap, timer, when);
            assert_eq!(heap.next(), times.iter().min().unwrap().0);
        }
        let half = 1 << 23;
        let early = fired(heap, half);
        let expected = times.iter().filter(|(when, _)| *when <= half).count();
        assert_eq!(early.len(), expected);
        let all = [early, fired(heap, NEVER - 1)].concat();
        let when = |name: &u64| times[*name as usize].0;
        assert!(all.is_sorted_by_key(when) && all.len() == 1000);
        assert_eq!(heap.next(), NEVER);
    }

    #[test]
    fn a_stopped_timer_does_not_fire_wherever_it_was_in_the_heap() {
        let heap = heap();
        let timers: Vec<_> = (0..200).map(Logged::new).collect();
        timers.iter().for_each(|timer| insert(heap, timer, (timer.name * 7919) % 211));
        for timer in timers.iter().filter(|timer| timer.name % 3 == 0) {
            assert!(timer.timer.stop());
            assert!(!timer.timer.stop());
        }
        let mut all = fired(heap, 1000);
        assert!(all.is_sorted_by_key(|name| (name * 7919) % 211));
        all.sort_unstable();
        assert!(all.iter().eq((0..200u64).filter(|name| name % 3 != 0).collect::<Vec<_>>().iter()));
        assert!(timers.iter().all(|timer| !timer.timer.stop()));
    }

    #[test]
    fn the_first_timer_that_can_wake_is_found_anywhere_in_the_heap() {
        let heap = heap();
        let timers: Vec<_> = (0..500).map(Logged::new).collect();
        let when = |timer: &Logged| (timer.name * 7919) % 1009 + 1;
        timers.iter().for_each(|timer| insert(heap, timer, when(timer)));
        let mut silent: Vec<_> = timers.iter().collect();
        silent.sort_by_key(|timer| when(timer));
        for timer in silent {
            assert!(heap.has_waking());
            assert_eq!(heap.next_waking(), when(timer));
            timer.can_wake.set(false);
        }
        assert!(!heap.has_waking());
        assert_eq!((heap.next_waking(), heap.next()), (NEVER, 1));
        timers[7].can_wake.set(true);
        assert_eq!(heap.next_waking(), when(&timers[7]));
        assert!(timers.iter().all(|timer| timer.timer.stop()));
        assert!(!heap.has_waking());
    }

    #[test]
    fn a_timer_that_returns_a_new_time_fires_again() {
        let heap = heap();
        let timer = Logged::new(1);
        timer.again.set(Some(20));
        insert(heap, &timer, 10);
        assert_eq!(fired(heap, 15), [1]);
        assert_eq!(heap.next(), 20);
        assert_eq!(fired(heap, 30), [1]);
        assert_eq!(heap.next(), NEVER);
    }
}
