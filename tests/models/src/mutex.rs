//! The word of `sync::Mutex` against its queue: a copy of the protocol, on the real queue of
//! `block::waiter`. There are never two holders, and no waiter is forgotten, in both modes.
//!
//! The steps are the same, except that a thread does not spin before it parks ([`Ways::competes`]
//! models the effect of spinning on the word), and that a thread that has waited is starving at
//! once.

use super::g::G;
use crate::explore::{exactly_these_orders, leak, most_orders};
use crate::protocol::waiter::{Fired, WaitQueue, Waiter, Wakeup};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::Mutex as Lock;
use loom::thread;

const LOCKED: u32 = 1;
const PARKED: u32 = 2;
const WOKEN: u32 = 4;
const STARVING: u32 = 8;
const TIMEOUT: usize = 9;

/// How waiting threads behave.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ways {
    /// A thread that was woken and did not get the lock makes the lock starving.
    starves: bool,
    /// A thread that has not waited yet sets `WOKEN` before it parks.
    competes: bool,
    /// Broken: takes a lock that is starving.
    barges: bool,
    /// Broken: parks without clearing its `WOKEN`.
    keeps_woken: bool,
}

const PLAIN: Ways = Ways { starves: false, competes: false, barges: false, keeps_woken: false };

struct Mutex {
    word: AtomicU32,
    queue: Lock<WaitQueue>,
    ways: Ways,
    value: Cell<u32>,
}

impl Mutex {
    fn new(ways: Ways) -> &'static Mutex {
        let (word, queue) = (AtomicU32::new(0), Lock::new(WaitQueue::new()));
        leak(Mutex { word, queue, ways, value: Cell::new(0) })
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // PAIR mutex: as in `block::sync::mutex`.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Locks the mutex. Returns false if the time limit passes first. `limit` runs on a thread of
    /// its own and may fire the wakeup.
    fn lock(&self, me: usize, limit: Option<fn(&'static Wakeup)>) -> bool {
        if self.change(0, LOCKED) {
            return true;
        }
        let refused = if self.ways.barges { LOCKED } else { LOCKED | STARVING };
        let (mut awake, mut waited) = (false, false);
        loop {
            let now = self.word.load(Ordering::Relaxed);
            if now & refused == 0 {
                let to = if awake { now & !WOKEN } else { now };
                if self.change(now, to | LOCKED) {
                    return true;
                }
                continue;
            }
            if self.ways.competes && !awake && now & (WOKEN | PARKED | STARVING) == PARKED {
                awake = self.change(now, now | WOKEN);
            }
            match self.park(me, awake, waited, limit) {
                Parked::No => {}
                Parked::Handed => return true,
                Parked::TimedOut => return false,
                Parked::Woken => (awake, waited) = (true, true),
            }
        }
    }

    fn park(
        &self,
        me: usize,
        awake: bool,
        waited: bool,
        limit: Option<fn(&'static Wakeup)>,
    ) -> Parked {
        let wakeup =
            leak(if limit.is_some() { Wakeup::contested() } else { Wakeup::uncontested() });
        let timer = limit.map(|limit| thread::spawn(move || limit(wakeup)));
        let (g, handed) = (G::new(me), Cell::new(false));
        let waiter = Waiter::new(wakeup, 0, std::ptr::from_ref(&handed).cast_mut().cast());
        let mut queue = self.queue.lock().unwrap();
        let refused = if self.ways.barges { LOCKED } else { LOCKED | STARVING };
        loop {
            let now = self.word.load(Ordering::Relaxed);
            if now & refused == 0 {
                drop(queue);
                timer.into_iter().for_each(|timer| timer.join().unwrap());
                return Parked::No;
            }
            let mut to = now | PARKED;
            if awake && !self.ways.keeps_woken {
                to &= !WOKEN;
            }
            if waited && self.ways.starves && now & LOCKED != 0 {
                to |= STARVING;
            }
            if self.change(now, to) {
                break;
            }
        }
        if waited {
            // SAFETY: frame — the only waiter of an uncontested wakeup; otherwise removed below.
            unsafe { queue.push_front(&waiter) };
        } else {
            // SAFETY: frame — as above.
            unsafe { queue.push(&waiter) };
        }
        g.save();
        let waits = wakeup.commit(g);
        drop(queue);
        if waits {
            g.sleep();
        }
        let Some(timer) = timer else {
            return if handed.get() { Parked::Handed } else { Parked::Woken };
        };
        let mut queue = self.queue.lock().unwrap();
        queue.remove(&waiter);
        let late = wakeup.fired() == Some(TIMEOUT);
        if late && queue.is_empty() {
            self.word.fetch_and(!(PARKED | STARVING), Ordering::Relaxed);
        }
        drop(queue);
        timer.join().unwrap();
        match (late, handed.get()) {
            (true, _) => Parked::TimedOut,
            (false, true) => Parked::Handed,
            (false, false) => Parked::Woken,
        }
    }

    fn unlock(&self) {
        // PAIR mutex: as in `block::sync::mutex`.
        if self.word.fetch_sub(LOCKED, Ordering::Release) != LOCKED
            && must_wake_waiter(self.word.load(Ordering::Relaxed))
        {
            self.wake_one();
        }
    }

    fn wake_one(&self) {
        let mut queue = self.queue.lock().unwrap();
        let now = self.word.load(Ordering::Relaxed);
        if !must_wake_waiter(now) {
            return;
        }
        let taken = queue.fire_next();
        let none_left = if queue.is_empty() { PARKED } else { 0 };
        let Some(taken) = taken else {
            self.word.fetch_and(!(PARKED | STARVING), Ordering::Relaxed);
            return;
        };
        let (mut set, mut clear) = (WOKEN, none_left);
        if now & STARVING != 0 {
            // SAFETY: every slot is a `Cell<bool>`.
            unsafe { &*taken.slot().cast::<Cell<bool>>() }.set(true);
            set = LOCKED;
            if none_left != 0 {
                clear |= STARVING;
            }
        }
        loop {
            let now = self.word.load(Ordering::Relaxed);
            if self.change(now, (now | set) & !clear) {
                break;
            }
        }
        let g = taken.g();
        drop(queue);
        g.into_iter().for_each(G::ready);
    }

    /// Adds one to the value under the lock. Returns whether it got the lock.
    fn add_one(&self, me: usize, limit: Option<fn(&'static Wakeup)>) -> bool {
        let got = self.lock(me, limit);
        if got {
            self.value.set(self.value.get() + 1);
            self.unlock();
        }
        got
    }
}

fn must_wake_waiter(now: u32) -> bool {
    if now & STARVING != 0 {
        now & LOCKED == 0
    } else {
        now & PARKED != 0 && now & (LOCKED | WOKEN) == 0
    }
}

enum Parked {
    /// The lock became free.
    No,
    Woken,
    Handed,
    TimedOut,
}

fn is_over(wakeup: &'static Wakeup) {
    if let Fired::Ready(g) = wakeup.fire(TIMEOUT) {
        g.ready();
    }
}

/// Runs `threads` threads that each add one `times` times.
fn additions(ways: Ways, threads: usize, times: u32) {
    let mutex = Mutex::new(ways);
    let others: Vec<_> = (1..threads)
        .map(|me| thread::spawn(move || (0..times).for_each(|_| _ = mutex.add_one(me, None))))
        .collect();
    (0..times).for_each(|_| _ = mutex.add_one(0, None));
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(mutex.value.get(), threads as u32 * times);
    assert_eq!(mutex.word.load(Ordering::Relaxed), 0, "the mutex word is 0 at the end");
}

/// Runs one thread that takes the lock twice against two threads that take it once. So a thread may
/// wait twice, and another thread may arrive when it is the turn of the waiter.
fn one_waits_twice(ways: Ways) {
    let mutex = Mutex::new(ways);
    let others = [1, 2].map(|me| thread::spawn(move || mutex.add_one(me, None)));
    (0..2).for_each(|_| _ = mutex.add_one(0, None));
    others.into_iter().for_each(|other| _ = other.join().unwrap());
    assert_eq!(mutex.value.get(), 4);
    assert_eq!(mutex.word.load(Ordering::Relaxed), 0, "the mutex word is 0 at the end");
}

#[test]
fn no_waiter_of_a_mutex_is_forgotten() {
    most_orders(3, || additions(PLAIN, 2, 2));
    most_orders(2, || additions(PLAIN, 3, 1));
}

#[test]
fn no_waiter_is_forgotten_when_new_threads_compete_for_the_lock() {
    let ways = Ways { competes: true, ..PLAIN };
    most_orders(3, move || additions(ways, 2, 2));
    most_orders(2, move || additions(ways, 3, 1));
}

#[test]
fn no_waiter_is_forgotten_when_the_lock_is_starving() {
    for competes in [false, true] {
        let ways = Ways { starves: true, competes, ..PLAIN };
        most_orders(3, move || additions(ways, 2, 3));
        most_orders(3, move || one_waits_twice(ways));
    }
}

fn with_a_limit(ways: Ways) {
    let mutex = Mutex::new(ways);
    let other = thread::spawn(move || mutex.add_one(1, Some(is_over)));
    assert!(mutex.add_one(0, None));
    assert!(mutex.add_one(0, None));
    let got = other.join().unwrap();
    assert_eq!(mutex.value.get(), 2 + u32::from(got));
    assert_eq!(mutex.word.load(Ordering::Relaxed), 0, "the mutex word is 0 at the end");
}

#[test]
fn a_waiter_that_times_out_leaves_no_bit_in_the_word() {
    most_orders(3, || with_a_limit(PLAIN));
    most_orders(3, || with_a_limit(Ways { starves: true, ..PLAIN }));
}

#[test]
#[should_panic]
fn broken_by_a_thread_that_takes_a_starving_lock() {
    exactly_these_orders(4, || one_waits_twice(Ways { starves: true, barges: true, ..PLAIN }));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_thread_that_parks_without_clearing_woken() {
    most_orders(3, || additions(Ways { keeps_woken: true, competes: true, ..PLAIN }, 3, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_word_changed_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    most_orders(2, || additions(PLAIN, 2, 1));
}
