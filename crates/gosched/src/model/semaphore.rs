//! A semaphore's hand-off, on the real queue of `block::waiter`: permits go to those who wait in their
//! order, and one who gives up lets the next have them.

use super::g::G;
use super::waiter::{Fired, WaitQueue, Waiter, Wakeup};
use super::{leak, most_orders};
use loom::sync::{Mutex, MutexGuard};
use loom::thread;

const TIMEOUT: usize = 9;

/// What one who gives up does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GivesUp {
    /// Lets those behind it have what is free.
    Serves,
    /// Broken: goes.
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

    /// False: the time is over. `limit` gets the turn that it may end.
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
        // SAFETY: frame — the only waiter of a turn that is alone; else removed below.
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
        // SAFETY: every ticket is a number that its owner, who waits, wants.
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
fn two_who_want_the_same_permit_both_get_it() {
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

/// One wants more than there is, and gives up; the one behind it wants what there is.
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
fn one_who_gives_up_lets_the_next_have_it() {
    most_orders(4, || one_gives_up(GivesUp::Serves));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_one_who_just_goes() {
    most_orders(4, || one_gives_up(GivesUp::Goes));
}
