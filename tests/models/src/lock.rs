//! The lock of `gosched_fiber::lock`: a copy of its protocol, since that crate has no loom build.
//!
//! The steps are the same, except that a waiter does not spin before it counts itself. There are
//! never two holders, and no sleeper is forgotten.

use crate::explore::{every_order, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::barrier;
use crate::sys::futex::Futex;
use crate::sys::weakness::{Weakness, weaken};
use loom::cell::UnsafeCell;
use loom::thread;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// How a holder releases the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    /// By a store, after which it checks the count of waiters.
    Store,
    /// By an exchange, which shows whether the lock was contended. The count is not checked.
    Exchange,
    /// Broken: by an exchange, but a woken waiter takes the lock without marking it as contended.
    ExchangeUnmarked,
}

/// When a waiter is no longer counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uncount {
    /// When it has the lock.
    Late,
    /// Broken: when it is woken.
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

// SAFETY: loom checks the accesses to the cell.
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
        // PAIR lock-word: as in `gosched_fiber::lock`.
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
            // PAIR lock-word: as in `gosched_fiber::lock`.
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
            // PAIR lock-word: as in `gosched_fiber::lock`.
            if self.word.swap(FREE, Ordering::Release) == CONTENDED {
                self.futex.wake();
            }
            return;
        }
        // The real lock stores. loom never orders a store and an exchange of one word that are not
        // ordered otherwise, so the model exchanges the word. The exchange does not replace the
        // barrier: with `Release` it does not order the load of `waiters` below.
        // PAIR lock-word: as in `gosched_fiber::lock`.
        self.word.swap(FREE, Ordering::Release);
        barrier::light();
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.futex.wake();
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
fn additions(uncount: Uncount, holders: u32, times: u32) {
    released(uncount, [Release::Store; 2], holders, times);
}

/// Like [`additions`], but the first thread releases the lock by `releases[0]`, and all other
/// threads release it by `releases[1]`.
fn released(uncount: Uncount, releases: [Release; 2], holders: u32, times: u32) {
    let lock = Lock::new(uncount, releases);
    let others: Vec<_> = (1..holders as usize)
        .map(|me| thread::spawn(move || (0..times).for_each(|_| lock.add_one(me))))
        .collect();
    (0..times).for_each(|_| lock.add_one(0));
    others.into_iter().for_each(|other| other.join().unwrap());
    // SAFETY: loom panics if there is a concurrent write.
    assert_eq!(lock.value.with(|value| unsafe { *value }), holders * times);
    assert_eq!(lock.waiters.load(Ordering::Relaxed), 0);
}

#[test]
fn two_threads_each_get_the_lock_once() {
    every_order(|| additions(Uncount::Late, 2, 1));
}

#[test]
fn two_threads_each_get_the_lock_twice() {
    most_orders(4, || additions(Uncount::Late, 2, 2));
}

#[test]
fn three_threads_each_get_the_lock_once() {
    most_orders(4, || additions(Uncount::Late, 3, 1));
}

#[test]
fn two_threads_that_release_the_lock_by_an_exchange_each_get_it() {
    every_order(|| released(Uncount::Late, [Release::Exchange; 2], 2, 1));
    every_order(|| released(Uncount::Late, [Release::Exchange, Release::Store], 2, 1));
}

#[test]
fn three_threads_that_release_the_lock_by_an_exchange_or_a_store_each_get_it() {
    most_orders(3, || released(Uncount::Late, [Release::Exchange; 2], 3, 1));
    most_orders(3, || released(Uncount::Late, [Release::Exchange, Release::Store], 3, 1));
    most_orders(3, || released(Uncount::Late, [Release::Store, Release::Exchange], 3, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_woken_waiter_that_does_not_mark_the_lock_as_contended() {
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
fn broken_by_a_sleep_that_checks_the_word_in_a_separate_step() {
    let _weak = weaken(Weakness::Futex);
    every_order(|| additions(Uncount::Late, 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_that_is_uncounted_when_it_is_woken() {
    most_orders(3, || additions(Uncount::Early, 3, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_release_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(|| additions(Uncount::Late, 2, 1));
}
