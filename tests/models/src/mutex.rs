//! The word of `sync::Mutex` against its queue: the product's word and the product's queue of
//! `block::waiter`. There are never two holders, and no waiter is forgotten, in both modes.
//!
//! The model has its own version of what surrounds the word: a lock for the queue, a sleep, and a
//! timer thread for each time limit. A thread that spins only tries again. No time passes: [`Ways`]
//! says which threads are starving.

use super::g::G;
use crate::explore::{exactly_these_orders, leak, most_orders};
use crate::protocol::mutex_word::{
    Contender, LOCKED, MutexWord, ParkDecision, ParkOutcome, Removed, ToWake, Unlocked,
};
use crate::protocol::waiter::{Fired, Taken, WaitQueue, Waiter, Wakeup};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::Mutex as Lock;
use loom::thread;

const TIMEOUT: usize = 9;

/// How the threads behave.
#[derive(Clone, Copy)]
struct Ways {
    starves: Starves,
    /// The lock stays starving when it is handed over and other threads wait.
    stays_starving: bool,
    /// A thread spins once before it parks for the first time.
    spins: bool,
    defect: Defect,
}

/// Which threads make the lock starving when they park.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Starves {
    Never,
    /// Threads that have waited before.
    AfterWait,
    /// All threads. So a lock is starving after fewer steps.
    AtOnce,
}

/// A step that the threads perform wrongly.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// A thread parks without clearing its `WOKEN`.
    KeepsWoken,
    /// A thread marks the word as parked before it acquires the queue's lock.
    MarksEarly,
    /// The holder does not look for waiters when it unlocks.
    WakesNoWaiter,
    /// The holder does not tell the waiter that the lock was handed to it.
    HandsOverInSilence,
    /// A thread that times out leaves the word as it is.
    LeavesBits,
    /// A thread that times out clears the bits although other threads wait.
    ForgetsOthers,
}

const PLAIN: Ways =
    Ways { starves: Starves::Never, stays_starving: true, spins: false, defect: Defect::None };

/// A time limit. It runs on a thread of its own, and may fire the wakeup.
type Limit = fn(&'static Wakeup);

struct Mutex {
    word: MutexWord,
    queue: Lock<WaitQueue>,
    ways: Ways,
    value: Cell<u32>,
}

impl Mutex {
    fn new(ways: Ways) -> &'static Mutex {
        let (word, queue) = (MutexWord::new(), Lock::new(WaitQueue::new()));
        leak(Mutex { word, queue, ways, value: Cell::new(0) })
    }

    fn has(&self, defect: Defect) -> bool {
        self.ways.defect == defect
    }

    /// Locks the mutex. Returns false if the time limit passes first.
    fn lock(&self, me: usize, limit: Option<Limit>) -> bool {
        let has_spun = std::cell::Cell::new(!self.ways.spins);
        self.word.lock_fast()
            || self.word.compete(
                |_| !has_spun.replace(true),
                || {},
                |contender| self.park(me, contender, limit),
            )
    }

    fn park(&self, me: usize, contender: Contender, limit: Option<Limit>) -> ParkOutcome {
        let wakeup =
            leak(if limit.is_some() { Wakeup::contested() } else { Wakeup::uncontested() });
        let timer = limit.map(|limit| thread::spawn(move || limit(wakeup)));
        let (g, handed) = (G::new(me), Cell::new(false));
        let waiter = Waiter::new(wakeup, 0, std::ptr::from_ref(&handed).cast_mut().cast());
        let early = self.has(Defect::MarksEarly).then(|| self.mark_parked(contender));
        let mut queue = self.queue.lock().unwrap();
        if early.unwrap_or_else(|| self.mark_parked(contender)) == ParkDecision::Free {
            drop(queue);
            timer.into_iter().for_each(|timer| timer.join().unwrap());
            return ParkOutcome::Free;
        }
        if contender.waited {
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
            return if handed.get() { ParkOutcome::Handed } else { ParkOutcome::Woken };
        };
        let mut queue = self.queue.lock().unwrap();
        queue.remove(&waiter);
        let late = wakeup.fired() == Some(TIMEOUT);
        if late && !self.has(Defect::LeavesBits) {
            self.word.after_timeout(queue.is_empty() || self.has(Defect::ForgetsOthers));
        }
        drop(queue);
        timer.join().unwrap();
        match (late, handed.get()) {
            (true, _) => ParkOutcome::TimedOut,
            (false, true) => ParkOutcome::Handed,
            (false, false) => ParkOutcome::Woken,
        }
    }

    fn mark_parked(&self, contender: Contender) -> ParkDecision {
        let awake = contender.awake && !self.has(Defect::KeepsWoken);
        let is_starving = match self.ways.starves {
            Starves::Never => false,
            Starves::AfterWait => contender.waited,
            Starves::AtOnce => true,
        };
        self.word.mark_parked(Contender { awake, ..contender }, is_starving)
    }

    fn unlock(&self) {
        if self.word.unlock() == Unlocked::MayHaveWaiters
            && !self.has(Defect::WakesNoWaiter)
            && self.word.must_wake_waiter()
        {
            self.wake_one();
        }
    }

    fn wake_one(&self) {
        let mut queue = self.queue.lock().unwrap();
        let remove_first = || {
            let waiter = queue.fire_next()?;
            Some(Removed { waiter, was_last: queue.is_empty() })
        };
        let hand_over = |taken: &Taken| {
            // SAFETY: every slot is a `Cell<bool>`.
            let handed = unsafe { &*taken.slot().cast::<Cell<bool>>() };
            handed.set(!self.has(Defect::HandsOverInSilence));
        };
        let to_wake = self.word.wake_waiter(remove_first, hand_over, |_| self.ways.stays_starving);
        let g = match to_wake {
            ToWake::None => None,
            ToWake::Contender(taken) | ToWake::Holder(taken) => taken.g(),
        };
        drop(queue);
        g.into_iter().for_each(G::ready);
    }

    /// Adds one to the value, under the lock, and unlocks.
    fn add_one_and_unlock(&self) {
        self.value.set(self.value.get() + 1);
        self.unlock();
    }

    /// Adds one to the value under the lock. Returns whether it got the lock.
    fn add_one(&self, me: usize, limit: Option<Limit>) -> bool {
        let got = self.lock(me, limit);
        if got {
            self.add_one_and_unlock();
        }
        got
    }

    /// Adds one to the value if it gets the lock at once. Returns whether it did.
    fn try_add_one(&self) -> bool {
        let got = self.word.try_lock();
        if got {
            self.add_one_and_unlock();
        }
        got
    }

    /// Broken: like [`Mutex::try_add_one`], but also takes a lock that is starving.
    fn barge_and_add_one(&self) -> bool {
        // SAFETY: `MutexWord` is transparent, so it is an `AtomicU32`.
        let word = unsafe { &*std::ptr::from_ref(&self.word).cast::<AtomicU32>() };
        let now = word.load(Ordering::Relaxed);
        // PAIR mutex: as in `mutex_word.rs`.
        let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let got =
            now & LOCKED == 0 && word.compare_exchange(now, now | LOCKED, done, failed).is_ok();
        if got {
            self.add_one_and_unlock();
        }
        got
    }

    /// Checks the value and the word, at the end.
    fn check(&self, value: u32) {
        assert_eq!(self.value.get(), value);
        assert!(self.word.lock_fast(), "the mutex word is 0 at the end");
    }
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
    mutex.check(threads as u32 * times);
}

/// Runs one thread that takes the lock twice against two threads that take it once. So a thread may
/// wait twice, and another thread may arrive when it is the turn of the waiter.
fn one_waits_twice(ways: Ways) {
    let mutex = Mutex::new(ways);
    let others = [1, 2].map(|me| thread::spawn(move || mutex.add_one(me, None)));
    (0..2).for_each(|_| _ = mutex.add_one(0, None));
    others.into_iter().for_each(|other| _ = other.join().unwrap());
    mutex.check(4);
}

/// Runs a thread that makes the lock starving against a thread that arrives later.
fn one_arrives(stays_starving: bool, arrive: fn(&'static Mutex) -> bool) {
    let mutex = Mutex::new(Ways { starves: Starves::AtOnce, stays_starving, ..PLAIN });
    assert!(mutex.lock(0, None));
    let waits = thread::spawn(move || mutex.add_one(1, None));
    let arrives = thread::spawn(move || arrive(mutex));
    mutex.add_one_and_unlock();
    assert!(waits.join().unwrap());
    let got = arrives.join().unwrap();
    mutex.check(2 + u32::from(got));
}

/// Runs a holder that unlocks once, against a thread that waits and a thread that takes the lock
/// twice. So the lock may become starving after the holder has unlocked it, and before the holder
/// acquires the queue's lock.
fn starves_during_unlock() {
    let mutex = Mutex::new(Ways { starves: Starves::AfterWait, ..PLAIN });
    assert!(mutex.lock(0, None));
    let waits = thread::spawn(move || mutex.add_one(1, None));
    let twice = thread::spawn(move || (0..2).for_each(|_| _ = mutex.add_one(2, None)));
    mutex.add_one_and_unlock();
    assert!(waits.join().unwrap());
    twice.join().unwrap();
    mutex.check(4);
}

#[test]
fn no_waiter_of_a_mutex_is_forgotten() {
    most_orders(3, || additions(PLAIN, 2, 2));
    most_orders(2, || additions(PLAIN, 3, 1));
}

#[test]
fn no_waiter_is_forgotten_when_new_threads_compete_for_the_lock() {
    let ways = Ways { spins: true, ..PLAIN };
    most_orders(3, move || additions(ways, 2, 2));
    most_orders(2, move || additions(ways, 3, 1));
}

#[test]
fn no_waiter_is_forgotten_when_the_lock_is_starving() {
    for spins in [false, true] {
        let ways = Ways { starves: Starves::AfterWait, spins, ..PLAIN };
        most_orders(3, move || additions(ways, 2, 3));
        most_orders(3, move || one_waits_twice(ways));
    }
}

#[test]
fn no_waiter_is_forgotten_when_the_lock_stops_starving() {
    most_orders(3, || one_arrives(false, |mutex| mutex.add_one(2, None)));
}

#[test]
fn a_thread_that_arrives_does_not_take_a_starving_lock() {
    most_orders(3, || one_arrives(true, |mutex| mutex.add_one(2, None)));
    most_orders(3, || one_arrives(true, Mutex::try_add_one));
}

#[test]
fn a_lock_that_becomes_starving_is_not_handed_over_by_an_earlier_holder() {
    most_orders(3, starves_during_unlock);
}

fn with_a_limit(ways: Ways) {
    let mutex = Mutex::new(ways);
    let other = thread::spawn(move || mutex.add_one(1, Some(is_over)));
    assert!(mutex.add_one(0, None));
    assert!(mutex.add_one(0, None));
    let got = other.join().unwrap();
    mutex.check(2 + u32::from(got));
}

/// Runs a thread that times out because the lock is not unlocked before.
fn only_waiter_times_out(ways: Ways) {
    let mutex = Mutex::new(ways);
    assert!(mutex.lock(0, None));
    let other = thread::spawn(move || mutex.lock(1, Some(is_over)));
    assert!(!other.join().unwrap());
    assert_eq!(mutex.word.unlock(), Unlocked::NoWaiter);
    mutex.check(0);
}

/// Runs a thread that may time out while another thread waits.
fn one_of_two_waiters_times_out(ways: Ways) {
    let mutex = Mutex::new(ways);
    assert!(mutex.lock(0, None));
    let limited = thread::spawn(move || mutex.add_one(1, Some(is_over)));
    let patient = thread::spawn(move || mutex.add_one(2, None));
    mutex.add_one_and_unlock();
    assert!(patient.join().unwrap());
    let got = limited.join().unwrap();
    mutex.check(2 + u32::from(got));
}

#[test]
fn a_waiter_that_times_out_leaves_no_bit_in_the_word() {
    most_orders(3, || with_a_limit(PLAIN));
    most_orders(3, || with_a_limit(Ways { starves: Starves::AfterWait, ..PLAIN }));
    most_orders(3, || with_a_limit(Ways { starves: Starves::AtOnce, ..PLAIN }));
    most_orders(3, || only_waiter_times_out(PLAIN));
    most_orders(3, || only_waiter_times_out(Ways { starves: Starves::AtOnce, ..PLAIN }));
}

#[test]
fn a_waiter_that_times_out_does_not_make_the_holder_forget_others() {
    most_orders(2, || one_of_two_waiters_times_out(PLAIN));
    most_orders(2, || one_of_two_waiters_times_out(Ways { starves: Starves::AtOnce, ..PLAIN }));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_thread_that_takes_a_starving_lock() {
    exactly_these_orders(3, || one_arrives(true, Mutex::barge_and_add_one));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_thread_that_parks_without_clearing_woken() {
    let ways = Ways { spins: true, defect: Defect::KeepsWoken, ..PLAIN };
    most_orders(3, move || additions(ways, 3, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_thread_that_marks_the_word_before_it_locks_the_queue() {
    most_orders(3, || additions(Ways { defect: Defect::MarksEarly, ..PLAIN }, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_holder_that_does_not_look_for_waiters() {
    most_orders(2, || additions(Ways { defect: Defect::WakesNoWaiter, ..PLAIN }, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_that_does_not_know_that_it_holds_the_lock() {
    let ways = Ways { starves: Starves::AfterWait, defect: Defect::HandsOverInSilence, ..PLAIN };
    exactly_these_orders(3, move || additions(ways, 2, 3));
}

#[test]
#[should_panic(expected = "NoWaiter")]
fn broken_by_a_waiter_that_times_out_and_leaves_its_bits() {
    most_orders(2, || only_waiter_times_out(Ways { defect: Defect::LeavesBits, ..PLAIN }));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_that_times_out_and_clears_the_bits_of_others() {
    let ways = Ways { defect: Defect::ForgetsOthers, ..PLAIN };
    most_orders(2, move || one_of_two_waiters_times_out(ways));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_word_changed_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    most_orders(2, || additions(PLAIN, 2, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_an_unlock_without_order() {
    let _weak = weaken(Weakness::Add);
    most_orders(2, || additions(PLAIN, 2, 1));
}
