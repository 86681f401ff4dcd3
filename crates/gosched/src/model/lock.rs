//! The lock of `gosched_fiber::lock`, as a twin: that crate knows nothing of loom.
//!
//! Step for step the same, but that nobody spins before it counts itself. Never two holders, and no
//! sleeper is forgotten.

use super::{every_order, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::barrier;
use crate::sys::futex_model::Futex;
use crate::sys::weakness::{Weakness, weaken};
use loom::cell::UnsafeCell;
use loom::thread;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// How a holder gives the lock back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    /// By a store, looking at the count then.
    Store,
    /// By an exchange, without another look.
    Exchange,
    /// Broken: by an exchange, while waiters take the lock without leaving a sign.
    ExchangeUnmarked,
}

/// When a waiter is not counted any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uncount {
    /// When it has the lock.
    Late,
    /// Broken: when it was woken.
    Early,
}

struct Lock {
    word: AtomicU32,
    waiters: AtomicU32,
    futex: Futex,
    uncount: Uncount,
    releases: [Release; 2],
    value: UnsafeCell<u32>,
}

// SAFETY: loom watches over the cell.
unsafe impl Sync for Lock {}
// SAFETY: as above.
unsafe impl Send for Lock {}

impl Lock {
    fn new(uncount: Uncount, releases: [Release; 2]) -> &'static Lock {
        leak(Lock {
            word: AtomicU32::new(FREE),
            waiters: AtomicU32::new(0),
            futex: Futex::new(),
            uncount,
            releases,
            value: UnsafeCell::new(0),
        })
    }

    fn try_lock(&self) -> bool {
        // PAIR lock-word: as the real one.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn lock(&self) {
        if self.try_lock() {
            return;
        }
        self.waiters.fetch_add(1, Ordering::Relaxed);
        barrier::heavy();
        while !self.lock_contended() {
            self.futex.wait(|| self.word.load(Ordering::Relaxed) == CONTENDED);
            if self.uncount == Uncount::Early {
                self.waiters.fetch_sub(1, Ordering::Relaxed);
                return while !self.lock_contended() {
                    self.futex.wait(|| self.word.load(Ordering::Relaxed) == CONTENDED);
                };
            }
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    fn lock_contended(&self) -> bool {
        let unmarked = self.releases.contains(&Release::ExchangeUnmarked);
        let change = |from, to| {
            // PAIR lock-word: as the real one.
            self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
        };
        loop {
            match change(FREE, if unmarked { HELD } else { CONTENDED }) {
                Ok(_) => return true,
                Err(CONTENDED) => return false,
                Err(_) if change(HELD, CONTENDED).is_ok() => return false,
                Err(_) => {}
            }
        }
    }

    fn release(&self, holder: usize) {
        if self.releases[holder.min(1)] != Release::Store {
            // PAIR lock-word: as the real one.
            if self.word.swap(FREE, Ordering::Release) == CONTENDED {
                self.futex.wake();
            }
            return;
        }
        // The real one stores. loom takes a store and an exchange that do not know of each other for
        // unordered, for ever; an exchange here says less of other words than it needs to.
        // PAIR lock-word: as the real one.
        self.word.swap(FREE, Ordering::Release);
        barrier::light();
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.futex.wake();
        }
    }

    fn add_one(&self, holder: usize) {
        self.lock();
        // SAFETY: loom complains if it is not the only access.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.release(holder);
    }
}

/// `holders` threads, each of which takes the lock `times` times.
fn additions(uncount: Uncount, holders: u32, times: u32) {
    released(uncount, [Release::Store; 2], holders, times);
}

/// The same, where the first gives it back in one way and the others in another.
fn released(uncount: Uncount, releases: [Release; 2], holders: u32, times: u32) {
    let lock = Lock::new(uncount, releases);
    let others: Vec<_> = (1..holders as usize)
        .map(|me| thread::spawn(move || (0..times).for_each(|_| lock.add_one(me))))
        .collect();
    (0..times).for_each(|_| lock.add_one(0));
    others.into_iter().for_each(|other| other.join().unwrap());
    // SAFETY: loom complains if somebody writes.
    assert_eq!(lock.value.with(|value| unsafe { *value }), holders * times);
    assert_eq!(lock.waiters.load(Ordering::Relaxed), 0);
}

#[test]
fn two_take_turns() {
    every_order(|| additions(Uncount::Late, 2, 1));
}

#[test]
fn two_take_turns_twice() {
    most_orders(4, || additions(Uncount::Late, 2, 2));
}

#[test]
fn of_three_none_is_forgotten() {
    most_orders(4, || additions(Uncount::Late, 3, 1));
}

#[test]
fn two_that_forget_the_lock_take_turns() {
    every_order(|| released(Uncount::Late, [Release::Exchange; 2], 2, 1));
    every_order(|| released(Uncount::Late, [Release::Exchange, Release::Store], 2, 1));
}

#[test]
fn of_three_that_forget_the_lock_or_not_none_is_forgotten() {
    most_orders(3, || released(Uncount::Late, [Release::Exchange; 2], 3, 1));
    most_orders(3, || released(Uncount::Late, [Release::Exchange, Release::Store], 3, 1));
    most_orders(3, || released(Uncount::Late, [Release::Store, Release::Exchange], 3, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_that_leaves_no_sign() {
    most_orders(3, || released(Uncount::Late, [Release::ExchangeUnmarked; 2], 3, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_holder_without_a_barrier() {
    let _weak = weaken(Weakness::Light);
    every_order(|| additions(Uncount::Late, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_without_a_barrier() {
    let _weak = weaken(Weakness::Heavy);
    every_order(|| additions(Uncount::Late, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_sleep_that_does_not_look() {
    let _weak = weaken(Weakness::Futex);
    every_order(|| additions(Uncount::Late, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_that_is_not_counted_any_more_too_early() {
    most_orders(3, || additions(Uncount::Early, 3, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_release_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(|| additions(Uncount::Late, 2, 1));
}
