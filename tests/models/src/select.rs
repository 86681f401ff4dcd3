//! The race to end a `select`, on the real wakeups of `block::waiter`: several senders may end one
//! wait, each under a lock of its own, and a time limit may end it without a lock. Exactly one of
//! them does.

use super::g::G;
use crate::explore::{leak, most_orders};
use crate::protocol::waiter::{Fired, WaitQueue, Waiter, Wakeup};
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::Mutex;
use loom::thread;

/// The arm of the time limit.
const TIMEOUT: usize = 9;

/// The waiting receivers of two channels.
struct Channels([Mutex<WaitQueue>; 2]);

impl Channels {
    fn new() -> &'static Channels {
        leak(Channels([(); 2].map(|()| Mutex::new(WaitQueue::new()))))
    }

    /// Sends `value` if a receiver waits. Returns whether it did.
    fn try_send(&self, arm: usize, value: u32) -> bool {
        let mut queue = self.0[arm].lock().unwrap();
        let Some(taken) = queue.fire_next() else { return false };
        // SAFETY: every slot is a `Cell<u32>`.
        unsafe { &*taken.slot().cast::<Cell<u32>>() }.set(value);
        let g = taken.g();
        drop(queue);
        g.into_iter().for_each(G::ready);
        true
    }

    /// Waits for a value from either channel, or for the time limit, which `limit` may start.
    /// Returns the arm that ended the wait, and the contents of both slots.
    fn select(&self, wakeup: &'static Wakeup, limit: impl FnOnce()) -> (Option<usize>, [u32; 2]) {
        let g = G::new(0);
        let slots = [(); 2].map(|()| Cell::new(0));
        let place = |arm: usize| std::ptr::from_ref(&slots[arm]).cast_mut().cast();
        let waiters = [0, 1].map(|arm| Waiter::new(wakeup, arm, place(arm)));
        limit();
        let mut queues = self.0.each_ref().map(|queue| queue.lock().unwrap());
        for (queue, waiter) in queues.iter_mut().zip(&waiters) {
            // SAFETY: frame — removed below, under the lock.
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

/// Runs two senders and a time limit against one `select`.
fn two_senders(wakeup: fn() -> Wakeup) {
    let (channels, wakeup) = (Channels::new(), leak(wakeup()));
    let senders = [0, 1].map(|arm| thread::spawn(move || channels.try_send(arm, 10 + arm as u32)));
    // The time limit ends the `select` if no sender comes in time.
    let limit = thread::spawn(move || fire(wakeup));
    let (arm, slots) = channels.select(wakeup, || {});
    let sent = senders.map(|sender| sender.join().unwrap());
    limit.join().unwrap();
    match arm {
        Some(TIMEOUT) => assert_eq!((sent, slots), ([false, false], [0, 0])),
        Some(arm) => {
            let expected = |this: usize| if this == arm { 10 + arm as u32 } else { 0 };
            assert_eq!(
                slots,
                [expected(0), expected(1)],
                "only the slot of the winning arm has a value"
            );
            assert_eq!(sent, [arm == 0, arm == 1], "only the winning sender has sent");
        }
        None => panic!("the select returned, but no arm has fired"),
    }
}

/// Fires the time limit.
fn fire(wakeup: &Wakeup) {
    if let Fired::Ready(g) = wakeup.fire(TIMEOUT) {
        g.ready();
    }
}

#[test]
fn exactly_one_of_two_senders_and_a_time_limit_ends_a_select() {
    most_orders(3, || two_senders(Wakeup::contested));
}

/// Runs one sender and a time limit against one `select`.
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
fn a_time_limit_that_fires_before_the_wait_ends_the_wait() {
    most_orders(3, a_sender_and_a_limit);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_an_uncontested_wakeup_with_several_firing_threads() {
    most_orders(3, || two_senders(Wakeup::uncontested));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_wakeup_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    most_orders(4, a_sender_and_a_limit);
}
