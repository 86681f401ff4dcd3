//! A select's win race, on the real turns of `block::waiter`: several may end one wait, each under a lock
//! of its own, and a time limit under none of them. One of them does.

use super::g::G;
use super::waiter::{Fired, WaitQueue, Waiter, Wakeup};
use super::{leak, most_orders};
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::Mutex;
use loom::thread;

/// The arm of the time limit.
const TIMEOUT: usize = 9;

/// Two channels that one selects from: those who wait to receive.
struct Channels([Mutex<WaitQueue>; 2]);

impl Channels {
    fn new() -> &'static Channels {
        leak(Channels([(); 2].map(|()| Mutex::new(WaitQueue::new()))))
    }

    /// Sends if somebody waits.
    fn try_send(&self, arm: usize, value: u32) -> bool {
        let mut queue = self.0[arm].lock().unwrap();
        let Some(taken) = queue.fire_next() else { return false };
        // SAFETY: every slot is one of these.
        unsafe { &*taken.slot().cast::<Cell<u32>>() }.set(value);
        let g = taken.g();
        drop(queue);
        g.into_iter().for_each(G::ready);
        true
    }

    /// Waits for a value from either, or for the time limit, which `limit` is told of: which arm it was,
    /// and what both slots hold.
    fn select(&self, wakeup: &'static Wakeup, limit: impl FnOnce()) -> (Option<usize>, [u32; 2]) {
        let g = G::new(0);
        let slots = [(); 2].map(|()| Cell::new(0));
        let place = |arm: usize| std::ptr::from_ref(&slots[arm]).cast_mut().cast();
        let waiters = [0, 1].map(|arm| Waiter::new(wakeup, arm, place(arm)));
        limit();
        let mut queues = self.0.each_ref().map(|queue| queue.lock().unwrap());
        for (queue, waiter) in queues.iter_mut().zip(&waiters) {
            // SAFETY: frame — taken out below, under the lock.
            unsafe { queue.push(waiter) };
        }
        g.save();
        let waits = wakeup.commit(g);
        drop(queues);
        if waits {
            g.sleep();
        }
        for (queue, waiter) in self.0.iter().zip(&waiters) {
            queue.lock().unwrap().remove(waiter);
        }
        (wakeup.fired(), slots.map(|slot| slot.get()))
    }
}

/// Two senders against one select.
fn two_senders(wakeup: fn() -> Wakeup) {
    let (channels, wakeup) = (Channels::new(), leak(wakeup()));
    let senders = [0, 1].map(|arm| thread::spawn(move || channels.try_send(arm, 10 + arm as u32)));
    // The time limit ends it if neither came in time.
    let limit = thread::spawn(move || fire(wakeup));
    let (arm, slots) = channels.select(wakeup, || {});
    let sent = senders.map(|sender| sender.join().unwrap());
    limit.join().unwrap();
    match arm {
        Some(TIMEOUT) => assert_eq!((sent, slots), ([false, false], [0, 0])),
        Some(arm) => {
            let expected = |this: usize| if this == arm { 10 + arm as u32 } else { 0 };
            assert_eq!(slots, [expected(0), expected(1)], "one value, in its own place");
            assert_eq!(sent, [arm == 0, arm == 1], "whoever lost knows it");
        }
        None => panic!("nothing ended it"),
    }
}

/// The time is over.
fn fire(wakeup: &Wakeup) {
    if let Fired::Ready(g) = wakeup.fire(TIMEOUT) {
        g.ready();
    }
}

#[test]
fn of_two_senders_and_a_limit_one_wins() {
    most_orders(3, || two_senders(Wakeup::contested));
}

/// One sender and a limit.
fn a_sender_and_a_limit() {
    let (channels, wakeup) = (Channels::new(), leak(Wakeup::contested()));
    let sender = thread::spawn(move || channels.try_send(0, 10));
    let mut limit = None;
    let (arm, slots) =
        channels.select(wakeup, || limit = Some(thread::spawn(move || fire(wakeup))));
    let sent = sender.join().unwrap();
    limit.unwrap().join().unwrap();
    assert_eq!((arm, slots[0]), if sent { (Some(0), 10) } else { (Some(TIMEOUT), 0) });
}

#[test]
fn a_limit_that_comes_before_the_wait_ends_it() {
    most_orders(3, a_sender_and_a_limit);
}

#[test]
#[should_panic]
fn broken_by_a_turn_that_thinks_it_is_alone() {
    most_orders(3, || two_senders(Wakeup::uncontested));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_turn_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    most_orders(4, a_sender_and_a_limit);
}
