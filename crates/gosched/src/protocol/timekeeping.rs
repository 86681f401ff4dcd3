//! When the first timer is due, and when the M wakes that keeps the time.
//!
//! The timers are in several heaps. [`earliest`](Timekeeping::earliest) is the time of the first
//! timer in all heaps, or an earlier time; it is too late for a moment if a timer is added while a
//! thread *refreshes* it from the heaps. Every M with a P checks it between two Gs. When Ms sleep,
//! one of them is the *timekeeper*: it wakes at `wakes_at`, which is 0 if there is no timekeeper.
//! `add_count` is the number of timers added so far.
//!
//! The invariant: no timer is earlier than every planned wake-up.
//!
//! - A timekeeper wakes no later than the first timer is due, also while no P is idle: a P may
//!   become idle before that.
//! - If there is a timer, a P is idle, and no M is the timekeeper, then an M is searching for work
//!   or is about to sleep. That M becomes the timekeeper.
//! - The exception: a timekeeper that leaves with a P to run a G may leave all other Ms asleep.
//!   Sysmon then wakes for the first timer (`sysmon_alarm::on_timekeeper_leaving`).
//!
//! The steps of each thread:
//!
//! - Adding thread: 1. puts the timer into a heap; 2. increments `add_count`; 3. lowers `earliest`
//!   to the timer's time; 4. if the old value was later, reads `wakes_at`: wakes the timekeeper if
//!   that is too late, or wakes an M as a submitter does (`protocol::waking`) if there is no
//!   timekeeper.
//! - Refreshing thread: 1. reads `add_count`; 2. reads all heaps; 3. exchanges `earliest`; 4.
//!   starts over if `add_count` has changed.
//! - Firing thread: 1. fires timers; 2. refreshes `earliest`; 3. if an old value of `earliest` was
//!   later than the new one, continues with step 4 of an adding thread.
//! - M that becomes the timekeeper, under the lock: 1. refreshes `earliest`; 2. stores it in
//!   `wakes_at`; 3. reads `earliest` again, and continues with step 2 if that is earlier; 4.
//!   sleeps.
//! - Thread that makes a P idle and does not go to sleep as a possible timekeeper: 1. makes the P
//!   idle; 2. passes a heavy barrier; 3. reads `earliest` and `wakes_at`, and wakes an M if there
//!   is a timer but no timekeeper.
//!
//! Why `earliest` does not stay too late: if a refreshing thread changes it after an adding thread
//! has lowered it, then the count has changed before, and the refreshing thread starts over. Why
//! the timekeeper does not sleep too long: steps 3 and 4 of the adding thread and steps 2 and 3 of
//! the timekeeper are in one total order, so at least one side sees the other. Why the firing
//! thread performs step 4: it may find a timer in a heap before the adding thread lowers
//! `earliest`, and the adding thread then finds nothing to lower; and other threads may have read
//! `earliest` while it was too late. So each thread that lowers `earliest` sees to it that an M
//! wakes in time.
//!
//! This module never reads the clock or a heap and never wakes an M: its callers do.

use crate::sys::atomic::{AtomicU64, Ordering, const_fn};
use crate::sys::cache_padded::CachePadded;
use crate::sys::clock::NEVER;

/// The words (see the top of this file). Every M reads `earliest` between two Gs, so that word has
/// a cache line of its own.
#[derive(Debug)]
pub(crate) struct Timekeeping {
    earliest: CachePadded<AtomicU64>,
    wakes_at: AtomicU64,
    add_count: AtomicU64,
}

/// Which thread must be woken for a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeForTimer {
    /// The timekeeper wakes in time.
    Nothing,
    /// There is no timekeeper: if a P is idle, an M must search for work and then become the
    /// timekeeper.
    IdleM,
    /// The timekeeper, which would wake too late.
    Timekeeper,
}

/// What a refresh has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refreshed {
    /// The time of the first timer: the new value of `earliest`.
    pub(crate) earliest: u64,
    /// Whether an old value of `earliest` was later than the new one.
    pub(crate) has_lowered: bool,
}

/// What a refreshing thread has read in steps 1 to 3, and whether it must start over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefreshPass {
    /// The time of the first timer in the heaps: the new value of `earliest`.
    earliest: u64,
    /// The old value of `earliest`.
    old: u64,
    must_start_over: bool,
}

impl Timekeeping {
    const_fn! {
        /// Creates the words for empty heaps.
        pub(crate) fn new() -> Timekeeping {
            Timekeeping {
                earliest: CachePadded::new(AtomicU64::new(NEVER)),
                wakes_at: AtomicU64::new(0),
                add_count: AtomicU64::new(0),
            }
        }
    }

    /// Returns a time before which no timer is due; `NEVER` if there is no timer. It may be too
    /// late for a moment.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest.load(Ordering::Relaxed)
    }

    /// Like [`Timekeeping::earliest`], for a thread that has published how long it will sleep and
    /// must not miss a timer that is added at the same time.
    pub(crate) fn earliest_in_order(&self) -> u64 {
        // PAIR timers: in one SeqCst order with a thread that adds a timer.
        self.earliest.load(Ordering::SeqCst)
    }

    /// Performs steps 2 and 3 of an adding thread. Returns whether the caller must perform step 4:
    /// no other timer was as early.
    pub(crate) fn add(&self, when: u64) -> bool {
        self.count();
        self.lower(when)
    }

    /// Performs step 2 of an adding thread.
    pub(crate) fn count(&self) {
        // PAIR timers: in one SeqCst order with a thread that refreshes, before `lower`.
        self.add_count.fetch_add(1, Ordering::SeqCst);
    }

    /// Performs step 3 of an adding thread.
    pub(crate) fn lower(&self, when: u64) -> bool {
        // PAIR timers: in one SeqCst order with the timekeeper, before the load in `wake_for`.
        self.earliest.fetch_min(when, Ordering::SeqCst) > when
    }

    /// Decides which thread must be woken for the first timer, which is due at `when`: step 4 of an
    /// adding thread.
    /// Go: wakeNetPoller, its test.
    pub(crate) fn wake_for(&self, when: u64) -> WakeForTimer {
        // PAIR timers: in one SeqCst order with `announce`.
        match self.wakes_at.load(Ordering::SeqCst) {
            0 => WakeForTimer::IdleM,
            at if at > when => WakeForTimer::Timekeeper,
            _ => WakeForTimer::Nothing,
        }
    }

    /// Performs steps 2 and 3 of an M that becomes the timekeeper, after step 1 has found
    /// `earliest`. `should_keep` returns whether the M should be the timekeeper if the first timer
    /// is due at the given time. Returns when the M must wake, or `None` if it is not the
    /// timekeeper. There must be no timekeeper. Called under the lock.
    pub(crate) fn become_timekeeper(
        &self,
        mut earliest: u64,
        mut should_keep: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        let mut is_announced = false;
        loop {
            if !should_keep(earliest) {
                if is_announced {
                    self.resign();
                }
                return None;
            }
            self.announce(earliest);
            is_announced = true;
            let again = self.earliest_in_order();
            if again >= earliest {
                return Some(earliest);
            }
            earliest = again;
        }
    }

    /// Performs step 2 of an M that becomes the timekeeper. Called under the lock.
    pub(crate) fn announce(&self, wakes_at: u64) {
        // PAIR timers: in one SeqCst order with a thread that adds a timer, before
        // `earliest_in_order`.
        self.wakes_at.store(wakes_at, Ordering::SeqCst);
    }

    /// Records that there is no timekeeper. Called under the lock.
    pub(crate) fn resign(&self) {
        // PAIR timers: in one SeqCst order with a thread that adds a timer.
        self.wakes_at.store(0, Ordering::SeqCst);
    }

    /// Updates `earliest` from the heaps: `first` reads them.
    /// Go: timeSleepUntil.
    pub(crate) fn refresh(&self, first: impl Fn() -> u64) -> Refreshed {
        let mut has_lowered = false;
        loop {
            let pass = self.refresh_once(&first);
            has_lowered |= pass.old > pass.earliest;
            if !pass.must_start_over {
                return Refreshed { earliest: pass.earliest, has_lowered };
            }
        }
    }

    /// Performs steps 1 to 3 of a refreshing thread.
    pub(crate) fn refresh_once(&self, first: impl Fn() -> u64) -> RefreshPass {
        // PAIR timers: in one SeqCst order with a thread that adds a timer.
        let added = self.add_count.load(Ordering::SeqCst);
        let earliest = first();
        // PAIR timers: in one SeqCst order with a thread that adds a timer, before the next load.
        let old = self.earliest.swap(earliest, Ordering::SeqCst);
        // PAIR timers: as above.
        let must_start_over = self.add_count.load(Ordering::SeqCst) != added;
        RefreshPass { earliest, old, must_start_over }
    }

    /// Performs steps 2 and 3 of a firing thread. Returns the time of the first timer if the caller
    /// must perform step 4 of an adding thread for it.
    pub(crate) fn refresh_after_firing(&self, first: impl Fn() -> u64) -> Option<u64> {
        let Refreshed { earliest, has_lowered } = self.refresh(first);
        (has_lowered && earliest != NEVER).then_some(earliest)
    }

    /// Returns whether there is a timer but no timekeeper: step 3 of a thread that makes a P
    /// idle.
    pub(crate) fn is_timekeeper_missing(&self) -> bool {
        // PAIR timers: in one SeqCst order with a thread that adds a timer.
        self.earliest_in_order() != NEVER && self.wakes_at.load(Ordering::SeqCst) == 0
    }
}
