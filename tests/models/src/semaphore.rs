//! The hand-off of a semaphore, on the real queue of `block::waiter`: waiters get permits in their
//! order, and a waiter that gives up lets the next waiter have them.

use super::g::G;
use crate::explore::{leak, most_orders};
use crate::protocol::waiter::{Fired, WaitQueue, Waiter, Wakeup};
use loom::sync::{Mutex, MutexGuard};
use loom::thread;

const TIMEOUT: usize = 9;

/// What a waiter does when it gives up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GivesUp {
    /// Gives the free permits to the waiters behind it.
    Serves,
    /// Broken: only leaves.
    Goes,
}

struct State {
    free: usize,
    queue: WaitQueue,
}

struct Semaphore {
    state: Mutex<State>,
    gives_up: GivesUp,
}

impl Semaphore {
    fn new(free: usize, gives_up: GivesUp) -> &'static Semaphore {
        let state = Mutex::new(State { free, queue: WaitQueue::new() });
        leak(Semaphore { state, gives_up })
    }

    fn release(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        state.free += count;
        serve(state);
    }

    /// Acquires `count` permits. Returns false if the time limit passes first. `limit` runs on a
    /// thread of its own and may fire the wakeup.
    fn acquire(&self, me: usize, mut count: usize, limit: Option<fn(&'static Wakeup)>) -> bool {
        let wakeup =
            leak(if limit.is_some() { Wakeup::contested() } else { Wakeup::uncontested() });
        let mut state = self.state.lock().unwrap();
        if state.queue.is_empty() && state.free >= count {
            state.free -= count;
            return true;
        }
        let timer = limit.map(|limit| thread::spawn(move || limit(wakeup)));
        let g = G::new(me);
        let waiter = Waiter::new(wakeup, 0, (&raw mut count).cast());
        // SAFETY: frame — the only waiter of an uncontested wakeup; otherwise removed below.
        unsafe { state.queue.push(&waiter) };
        g.save();
        let waits = wakeup.commit(g);
        drop(state);
        if waits {
            g.sleep();
        }
        let Some(timer) = timer else { return true };
        let mut state = self.state.lock().unwrap();
        state.queue.remove(&waiter);
        let late = wakeup.fired() == Some(TIMEOUT);
        if late && self.gives_up == GivesUp::Serves {
            serve(state);
        } else {
            drop(state);
        }
        timer.join().unwrap();
        !late
    }
}

fn serve(mut state: MutexGuard<'_, State>) {
    let mut ready = Vec::new();
    while let Some(ticket) = state.queue.first_ticket() {
        // SAFETY: every ticket points to the count that its owner wants, and the owner waits.
        let count = unsafe { *ticket.cast::<usize>() };
        if state.free < count {
            break;
        }
        if let Some(taken) = state.queue.fire_first() {
            state.free -= count;
            ready.extend(taken.g());
        }
    }
    drop(state);
    ready.into_iter().for_each(G::ready);
}

fn is_over(wakeup: &'static Wakeup) {
    if let Fired::Ready(g) = wakeup.fire(TIMEOUT) {
        g.ready();
    }
}

#[test]
fn two_threads_that_want_the_same_permit_both_get_it() {
    most_orders(3, || {
        let semaphore = Semaphore::new(1, GivesUp::Serves);
        let others = [0, 1].map(|me| {
            thread::spawn(move || {
                assert!(semaphore.acquire(me, 1, None));
                semaphore.release(1);
            })
        });
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(semaphore.state.lock().unwrap().free, 1);
    });
}

/// Queues a waiter that wants more permits than are free and gives up, and behind it a waiter that
/// wants what is free.
fn one_gives_up(gives_up: GivesUp) {
    let semaphore = Semaphore::new(1, gives_up);
    let large = thread::spawn(move || {
        if semaphore.acquire(0, 2, Some(is_over)) {
            semaphore.release(2);
        }
    });
    assert!(semaphore.acquire(1, 1, None));
    semaphore.release(1);
    large.join().unwrap();
    assert_eq!(semaphore.state.lock().unwrap().free, 1);
}

#[test]
fn a_waiter_that_gives_up_lets_the_next_waiter_have_the_permit() {
    most_orders(4, || one_gives_up(GivesUp::Serves));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_that_gives_up_without_serving_the_next() {
    most_orders(4, || one_gives_up(GivesUp::Goes));
}
