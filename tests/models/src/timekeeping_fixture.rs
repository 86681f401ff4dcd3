//! A small scheduler for the models of timekeeping: its Ms do what `sched::run::idle` and
//! `sched::run::timers` do, with the product's words, counts and barriers.
//!
//! The time stands still at [`NOW`], so an M that sleeps until a later time sleeps until the end.
//! There the world checks its rule ([`World::assert_time_is_kept`]). The scheduler's lock is loom's
//! mutex. An M that sleeps is an entry of a list, and a thread that wakes an M does, after its own
//! last step, what that M does. A heap is a word with the time of its only timer.

use crate::protocol::timekeeping::{Timekeeping, WakeForTimer};
use crate::protocol::waking::{self, WakeCounts};
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::clock::NEVER;
use loom::sync::Mutex;

/// The present time.
pub(super) const NOW: u64 = 10;

/// A step that is done wrongly, to check that the model then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Nothing,
    /// The timekeeper sleeps without reading `earliest` again.
    TimekeeperReadsOnce,
    /// The adding thread reads when the timekeeper wakes before it lowers `earliest`.
    WakeTimeReadFirst,
    /// The adding thread does not increment `add_count`.
    AddsUncounted,
    /// The adding thread increments `add_count` after it has lowered `earliest`.
    CountsLast,
    /// The adding thread increments `add_count` before it puts the timer into a heap.
    CountsFirst,
    /// The refreshing thread does not start over.
    RefreshesOnce,
    /// The firing thread does not check the timekeeper.
    FiresWithoutCheck,
    /// The firing thread wakes the timekeeper if necessary, but no M if there is no timekeeper.
    FiresAndWakesOnlyTimekeeper,
    /// The thread that makes a P idle does not check whether the timekeeper is missing.
    HandsOffWithoutCheck,
}

pub(super) struct World {
    timekeeping: Timekeeping,
    counts: WakeCounts,
    /// When the timer of each heap is due.
    heaps: [AtomicU64; 3],
    locked: Mutex<Locked>,
    broken: Broken,
}

#[derive(Debug, Default)]
struct Locked {
    idle_ps: u32,
    idle_ms: Vec<u32>,
    timekeeper: Option<u32>,
    /// Number of Ms made because no M slept.
    made: u32,
}

/// The number of the first M that is made because no M sleeps.
const FIRST_MADE_M: u32 = 100;

impl World {
    /// Creates a world without timers, with `idle_ps` idle Ps and without sleeping Ms.
    pub(super) fn new(idle_ps: u32, broken: Broken) -> World {
        let world = World {
            timekeeping: Timekeeping::new(),
            counts: WakeCounts::new(),
            heaps: [NEVER; 3].map(AtomicU64::new),
            locked: Mutex::default(),
            broken,
        };
        for _ in 0..idle_ps {
            world.push_idle_p(&mut world.locked.lock().unwrap());
        }
        world
    }

    fn first(&self) -> u64 {
        let next = |heap: &AtomicU64| {
            // PAIR timer-next: as in the real heap.
            heap.load(Ordering::Acquire)
        };
        self.heaps.iter().map(next).min().unwrap()
    }

    fn set_heap(&self, heap: usize, when: u64) {
        // PAIR timer-next: as in the real heap.
        self.heaps[heap].store(when, Ordering::Release);
    }

    /// Puts a timer into an empty heap without telling any M, before the model begins.
    pub(super) fn begin_with_timer(&self, heap: usize, when: u64) {
        self.set_heap(heap, when);
        self.timekeeping.add(when);
    }

    /// Adds a timer, as `timers::insert` does.
    pub(super) fn add(&self, heap: usize, when: u64) {
        let words = &self.timekeeping;
        if self.broken == Broken::CountsFirst {
            words.count();
        }
        self.set_heap(heap, when);
        if self.broken == Broken::WakeTimeReadFirst {
            words.count();
            let wake = words.wake_for(when);
            if words.lower(when) {
                self.wake_for_timer(wake);
            }
            return;
        }
        let is_first = match self.broken {
            Broken::AddsUncounted | Broken::CountsFirst => words.lower(when),
            Broken::CountsLast => {
                let is_first = words.lower(when);
                words.count();
                is_first
            }
            _ => words.add(when),
        };
        if is_first {
            self.wake_for_timer(words.wake_for(when));
        }
    }

    fn wake_for_timer(&self, wake: WakeForTimer) {
        match wake {
            WakeForTimer::Nothing => {}
            WakeForTimer::IdleM => self.wake_if_idle(),
            WakeForTimer::Timekeeper => {
                let mut locked = self.locked.lock().unwrap();
                let Some(m) = locked.timekeeper else { return };
                self.resign(&mut locked, m);
                locked.idle_ms.retain(|&idle| idle != m);
                drop(locked);
                // The M is woken without a P.
                self.run_without_p(m);
            }
        }
    }

    /// Fires the due timers, as `timers::run_due` does.
    pub(super) fn fire_due(&self) {
        for heap in 0..self.heaps.len() {
            // PAIR timer-next: as in the real heap.
            if self.heaps[heap].load(Ordering::Acquire) <= NOW {
                self.set_heap(heap, NEVER);
            }
        }
        let words = &self.timekeeping;
        let missed = match self.broken {
            Broken::RefreshesOnce => {
                words.refresh_once(|| self.first());
                None
            }
            Broken::FiresWithoutCheck => {
                words.refresh(|| self.first());
                None
            }
            Broken::FiresAndWakesOnlyTimekeeper => {
                let missed = words.refresh_after_firing(|| self.first());
                missed.filter(|&when| words.wake_for(when) == WakeForTimer::Timekeeper)
            }
            _ => words.refresh_after_firing(|| self.first()),
        };
        if let Some(when) = missed {
            self.wake_for_timer(words.wake_for(when));
        }
    }

    /// Makes a P idle without going to sleep, as `hand_off` does.
    pub(super) fn hand_off(&self) {
        self.push_idle_p(&mut self.locked.lock().unwrap());
        let checks = self.broken != Broken::HandsOffWithoutCheck;
        if waking::is_spinner_wanted_after_idling(|| {
            self.is_due() || (checks && self.timekeeping.is_timekeeper_missing())
        }) {
            self.start_spinner();
        }
    }

    fn is_due(&self) -> bool {
        self.timekeeping.earliest() <= NOW
    }

    fn wake_if_idle(&self) {
        if self.counts.is_spinner_wanted_after_submit() {
            self.start_spinner();
        }
    }

    fn start_spinner(&self) {
        let mut locked = self.locked.lock().unwrap();
        let p = self.counts.acquire_p_for_spinner(|| self.pop_idle_p(&mut locked));
        if p.is_none() {
            return;
        }
        let m = self.pop_idle_m(&mut locked);
        drop(locked);
        self.spin();
        self.run_without_p(m);
    }

    /// Takes a sleeping M, the timekeeper only if there is no other. Makes an M if none sleeps.
    fn pop_idle_m(&self, locked: &mut Locked) -> u32 {
        let other = locked.idle_ms.iter().position(|&m| Some(m) != locked.timekeeper);
        let place = other.or_else(|| (!locked.idle_ms.is_empty()).then_some(0));
        let Some(place) = place else {
            locked.made += 1;
            return FIRST_MADE_M + locked.made;
        };
        let m = locked.idle_ms.remove(place);
        self.resign(locked, m);
        m
    }

    /// Runs an M that has no P and is about to sleep, until it sleeps.
    pub(super) fn run_without_p(&self, m: u32) {
        while self.stop_m(m) {
            self.spin();
        }
    }

    /// Runs an M that spins, until it has no P.
    fn spin(&self) {
        loop {
            if self.is_due() {
                self.fire_due();
            }
            let mut locked = self.locked.lock().unwrap();
            self.push_idle_p(&mut locked);
            self.counts.stop_spinning_without_work();
            drop(locked);
            let p = waking::recheck_for_work(|| self.is_due(), || self.take_p_to_spin());
            if p.is_none() {
                return;
            }
        }
    }

    fn take_p_to_spin(&self) -> Option<()> {
        let mut locked = self.locked.lock().unwrap();
        self.pop_idle_p(&mut locked)?;
        self.counts.start_spinning();
        Some(())
    }

    /// Puts the M to sleep. Returns true if it spins with a P because a timer is due, and false if
    /// it sleeps until the end or another thread runs it.
    fn stop_m(&self, m: u32) -> bool {
        loop {
            let mut locked = self.locked.lock().unwrap();
            locked.idle_ms.push(m);
            let until = self.become_timekeeper(&mut locked, m);
            drop(locked);
            if until.is_none_or(|until| until > NOW) {
                return false;
            }
            // The sleep times out at once.
            let mut locked = self.locked.lock().unwrap();
            let Some(place) = locked.idle_ms.iter().position(|&idle| idle == m) else {
                return false;
            };
            locked.idle_ms.remove(place);
            self.resign(&mut locked, m);
            if self.is_due() && self.pop_idle_p(&mut locked).is_some() {
                self.counts.start_spinning();
                return true;
            }
        }
    }

    fn become_timekeeper(&self, locked: &mut Locked, m: u32) -> Option<u64> {
        if locked.timekeeper.is_some() {
            return None;
        }
        let has_idle_p = locked.idle_ps > 0;
        let should_keep = |when| when != NEVER && (when > NOW || has_idle_p);
        let words = &self.timekeeping;
        let earliest = words.refresh(|| self.first()).earliest;
        let until = if self.broken == Broken::TimekeeperReadsOnce {
            let until = Some(earliest).filter(|&earliest| should_keep(earliest));
            until.inspect(|&until| words.announce(until))
        } else {
            words.become_timekeeper(earliest, should_keep)
        };
        if until.is_some() {
            locked.timekeeper = Some(m);
        }
        until
    }

    fn resign(&self, locked: &mut Locked, m: u32) {
        if locked.timekeeper == Some(m) {
            locked.timekeeper = None;
            self.timekeeping.resign();
        }
    }

    fn push_idle_p(&self, locked: &mut Locked) {
        locked.idle_ps += 1;
        self.counts.count_idle_p();
    }

    fn pop_idle_p(&self, locked: &mut Locked) -> Option<()> {
        locked.idle_ps = locked.idle_ps.checked_sub(1)?;
        self.counts.count_acquired_p();
        Some(())
    }

    /// Checks the rule of `protocol::timekeeping` when every M sleeps or runs a G until the end.
    pub(super) fn assert_time_is_kept(&self) {
        let (first, idle_ps) = (self.first(), self.locked.lock().unwrap().idle_ps);
        assert!(self.timekeeping.earliest() <= first, "`earliest` stays too late");
        assert_eq!(self.counts.spinning(), 0);
        match self.timekeeping.wake_for(first) {
            WakeForTimer::Nothing => {}
            WakeForTimer::IdleM => {
                assert!(idle_ps == 0 || first == NEVER, "no M keeps the time");
            }
            WakeForTimer::Timekeeper => panic!("the timekeeper sleeps too long"),
        }
        assert!(first > NOW, "a timer that is due was not fired");
    }
}
