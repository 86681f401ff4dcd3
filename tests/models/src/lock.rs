//! The runtime's lock: there are never two holders, and no sleeper is forgotten.

use crate::explore::{every_order, leak, most_orders};
use crate::protocol::lock_word::LockWord;
use crate::sys::weakness::{Weakness, weaken};
use loom::cell::UnsafeCell;
use loom::thread;

/// How a thread takes the lock.
#[derive(Clone, Copy)]
enum Take {
    /// By the product's own function.
    Product,
    /// Broken: a waiter takes a free lock without marking it as contended.
    Unmarked,
    /// Broken: a waiter is no longer counted when it is woken, before it has the lock.
    UncountedEarly,
}

/// How a holder releases the lock.
#[derive(Clone, Copy)]
enum Release {
    /// By a store, after which it checks the count of waiters.
    Store,
    /// By an exchange, which shows whether the lock was contended. The count is not checked.
    Exchange,
}

struct Lock {
    word: LockWord,
    take: Take,
    releases: [Release; 2],
    value: UnsafeCell<u32>,
}

// SAFETY: loom checks the accesses to the cell.
unsafe impl Sync for Lock {}
// SAFETY: as above.
unsafe impl Send for Lock {}

impl Lock {
    fn new(take: Take, releases: [Release; 2]) -> &'static Lock {
        leak(Lock { word: LockWord::new(), take, releases, value: UnsafeCell::new(0) })
    }

    fn lock(&self) {
        match self.take {
            Take::Product => self.word.lock(),
            Take::Unmarked => self.lock_unmarked(),
            Take::UncountedEarly => self.lock_uncounted_early(),
        }
    }

    /// Takes a free lock by the step of a thread that does not wait.
    fn lock_unmarked(&self) {
        if self.word.try_lock() {
            return;
        }
        self.word.count_waiter();
        while !self.word.try_lock() && !self.word.lock_contended() {
            self.word.sleep();
        }
        self.word.uncount_waiter();
    }

    /// Ends the count of the waiter after its first sleep.
    fn lock_uncounted_early(&self) {
        if self.word.try_lock() {
            return;
        }
        self.word.count_waiter();
        let mut is_counted = true;
        while !self.word.lock_contended() {
            self.word.sleep();
            if std::mem::take(&mut is_counted) {
                self.word.uncount_waiter();
            }
        }
        if is_counted {
            self.word.uncount_waiter();
        }
    }

    fn release(&self, holder: usize) {
        match self.releases[holder.min(1)] {
            Release::Store => self.word.release(),
            Release::Exchange => self.word.release_before_free(),
        }
    }

    fn add_one(&self, holder: usize) {
        self.lock();
        // SAFETY: loom panics if there is a concurrent access.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.release(holder);
    }
}

/// Runs `holders` threads that each take the lock `times` times.
fn additions(take: Take, holders: u32, times: u32) {
    released(take, [Release::Store; 2], holders, times);
}

/// Like [`additions`], but the first thread releases the lock by `releases[0]`, and all other
/// threads release it by `releases[1]`.
fn released(take: Take, releases: [Release; 2], holders: u32, times: u32) {
    let lock = Lock::new(take, releases);
    let others: Vec<_> = (1..holders as usize)
        .map(|me| thread::spawn(move || (0..times).for_each(|_| lock.add_one(me))))
        .collect();
    (0..times).for_each(|_| lock.add_one(0));
    others.into_iter().for_each(|other| other.join().unwrap());
    // SAFETY: loom panics if there is a concurrent write.
    assert_eq!(lock.value.with(|value| unsafe { *value }), holders * times);
    assert!(!lock.word.has_waiters(), "no waiter is counted at the end");
}

#[test]
fn two_threads_each_get_the_lock_once() {
    every_order(|| additions(Take::Product, 2, 1));
}

#[test]
fn two_threads_each_get_the_lock_twice() {
    most_orders(4, || additions(Take::Product, 2, 2));
}

#[test]
fn three_threads_each_get_the_lock_once() {
    most_orders(4, || additions(Take::Product, 3, 1));
}

#[test]
fn two_threads_that_release_the_lock_by_an_exchange_each_get_it() {
    every_order(|| released(Take::Product, [Release::Exchange; 2], 2, 1));
    every_order(|| released(Take::Product, [Release::Exchange, Release::Store], 2, 1));
}

#[test]
fn three_threads_that_release_the_lock_by_an_exchange_or_a_store_each_get_it() {
    most_orders(3, || released(Take::Product, [Release::Exchange; 2], 3, 1));
    most_orders(3, || released(Take::Product, [Release::Exchange, Release::Store], 3, 1));
    most_orders(3, || released(Take::Product, [Release::Store, Release::Exchange], 3, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_woken_waiter_that_does_not_mark_the_lock_as_contended() {
    most_orders(3, || released(Take::Unmarked, [Release::Exchange; 2], 3, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_holder_without_a_barrier() {
    let _weak = weaken(Weakness::Light);
    every_order(|| additions(Take::Product, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_without_a_barrier() {
    let _weak = weaken(Weakness::Heavy);
    every_order(|| additions(Take::Product, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_sleep_that_checks_the_word_in_a_separate_step() {
    let _weak = weaken(Weakness::Futex);
    every_order(|| additions(Take::Product, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_that_is_uncounted_when_it_is_woken() {
    most_orders(3, || additions(Take::UncountedEarly, 3, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_release_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(|| additions(Take::Product, 2, 1));
}
