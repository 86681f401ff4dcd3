//! The lock of `gosched_context::lock`, as a twin: that crate knows nothing of loom.
//!
//! Step for step the same, but that nobody spins before it counts itself. Never two holders, and no
//! sleeper is forgotten.

use super::{every_order, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::barrier;
use crate::sys::futex_model::Futex;
use crate::sys::weakness::{Weakness, put_in_force};
use loom::cell::UnsafeCell;
use loom::thread;

const FREE: u32 = 0;
const HELD: u32 = 1;

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
    value: UnsafeCell<u32>,
}

// SAFETY: loom watches over the cell.
unsafe impl Sync for Lock {}
// SAFETY: as above.
unsafe impl Send for Lock {}

impl Lock {
    fn new(uncount: Uncount) -> &'static Lock {
        leak(Lock {
            word: AtomicU32::new(FREE),
            waiters: AtomicU32::new(0),
            futex: Futex::new(),
            uncount,
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
        while !self.try_lock() {
            self.futex.wait(|| self.word.load(Ordering::Relaxed) == HELD);
            if self.uncount == Uncount::Early {
                self.waiters.fetch_sub(1, Ordering::Relaxed);
                return while !self.try_lock() {
                    self.futex.wait(|| self.word.load(Ordering::Relaxed) == HELD);
                };
            }
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    fn release(&self) {
        // PAIR lock-word: as the real one.
        self.word.store(FREE, Ordering::Release);
        barrier::light();
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.futex.wake();
        }
    }

    fn add_one(&self) {
        self.lock();
        // SAFETY: loom complains if it is not the only access.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.release();
    }
}

/// `holders` threads, each of which takes the lock `times` times.
fn additions(uncount: Uncount, holders: u32, times: u32) {
    let lock = Lock::new(uncount);
    let others: Vec<_> = (1..holders)
        .map(|_| thread::spawn(move || (0..times).for_each(|_| lock.add_one())))
        .collect();
    (0..times).for_each(|_| lock.add_one());
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
#[should_panic(expected = "deadlock")]
fn broken_by_a_holder_without_a_barrier() {
    let _weak = put_in_force(Weakness::Light);
    every_order(|| additions(Uncount::Late, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_without_a_barrier() {
    let _weak = put_in_force(Weakness::Heavy);
    every_order(|| additions(Uncount::Late, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_sleep_that_does_not_look() {
    let _weak = put_in_force(Weakness::Futex);
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
    let _weak = put_in_force(Weakness::Store);
    every_order(|| additions(Uncount::Late, 2, 1));
}
