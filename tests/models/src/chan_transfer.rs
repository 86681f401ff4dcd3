//! The hand-off of a channel, on the real waiters and queues of `block::waiter`: a value moves from
//! frame to frame, under a lock that has a model of its own.

use super::g::G;
use crate::explore::{every_order, leak, most_orders};
use crate::protocol::waiter::{WaitQueue, Waiter, Wakeup};
use crate::sys::cell::Cell;
use loom::sync::Mutex;
use loom::thread;

/// The state of a channel without a buffer.
#[derive(Default)]
struct State {
    senders: WaitQueue,
    receivers: WaitQueue,
    closed: bool,
}

/// When a waiter commits, so that it may be made ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settle {
    /// Before it releases the lock.
    Before,
    /// Broken: after it has released the lock.
    After,
}

struct Channel {
    state: Mutex<State>,
    settle: Settle,
}

impl Channel {
    fn new(settle: Settle) -> &'static Channel {
        leak(Channel { state: Mutex::new(State::default()), settle })
    }

    fn send(&self, me: usize, value: u32) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.closed {
            return false;
        }
        if let Some(receiver) = state.receivers.fire_next() {
            // SAFETY: every receiver's slot is a `Cell<u32>`.
            unsafe { &*receiver.slot().cast::<Cell<u32>>() }.set(value);
            let g = receiver.g();
            drop(state);
            g.into_iter().for_each(G::ready);
            return true;
        }
        let slot = Cell::new(value);
        self.wait(state, |state| &mut state.senders, me, &slot)
    }

    fn receive(&self, me: usize) -> Option<u32> {
        let slot = Cell::new(0);
        let mut state = self.state.lock().unwrap();
        if let Some(sender) = state.senders.fire_next() {
            // SAFETY: every sender's slot is a `Cell<u32>`.
            slot.set(unsafe { &*sender.slot().cast::<Cell<u32>>() }.get());
            let g = sender.g();
            drop(state);
            g.into_iter().for_each(G::ready);
            return Some(slot.get());
        }
        if state.closed {
            return None;
        }
        self.wait(state, |state| &mut state.receivers, me, &slot).then(|| slot.get())
    }

    fn wait(
        &self,
        mut state: loom::sync::MutexGuard<'_, State>,
        queue: fn(&mut State) -> &mut WaitQueue,
        me: usize,
        slot: &Cell<u32>,
    ) -> bool {
        let (g, wakeup) = (G::new(me), Wakeup::uncontested());
        let waiter = Waiter::new(&wakeup, 0, std::ptr::from_ref(slot).cast_mut().cast());
        // SAFETY: frame — the only waiter of its wakeup, and this function returns after it was
        // made ready.
        unsafe { queue(&mut state).push(&waiter) };
        g.save();
        if self.settle == Settle::Before {
            assert!(wakeup.commit(g));
        }
        drop(state);
        if self.settle == Settle::After {
            wakeup.commit(g);
        }
        g.sleep();
        !waiter.is_woken_by_close()
    }

    fn close(&self) {
        let mut state = self.state.lock().unwrap();
        state.closed = true;
        let mut ready = Vec::new();
        while let Some(taken) = state.receivers.fire_next() {
            taken.mark_woken_by_close();
            ready.extend(taken.g());
        }
        while let Some(taken) = state.senders.fire_next() {
            taken.mark_woken_by_close();
            ready.extend(taken.g());
        }
        drop(state);
        ready.into_iter().for_each(G::ready);
    }
}

fn one_to_one(settle: Settle) {
    let channel = Channel::new(settle);
    let sender = thread::spawn(move || channel.send(0, 7));
    assert_eq!(channel.receive(1), Some(7));
    assert!(sender.join().unwrap());
}

#[test]
fn a_value_moves_from_the_sender_to_the_receiver() {
    every_order(|| one_to_one(Settle::Before));
}

#[test]
fn each_of_two_values_is_received_once() {
    most_orders(3, || {
        let channel = Channel::new(Settle::Before);
        let senders = [0, 1].map(|me| thread::spawn(move || channel.send(me, 10 + me as u32)));
        let sum = channel.receive(2).unwrap() + channel.receive(3).unwrap();
        assert_eq!(sum, 21);
        assert!(senders.into_iter().all(|sender| sender.join().unwrap()));
    });
}

#[test]
fn two_receivers_get_one_value_each() {
    most_orders(3, || {
        let channel = Channel::new(Settle::Before);
        let receivers = [0, 1].map(|me| thread::spawn(move || channel.receive(me).unwrap()));
        assert!(channel.send(2, 10) && channel.send(3, 11));
        let sum: u32 = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
        assert_eq!(sum, 21);
    });
}

#[test]
fn a_close_wakes_every_waiting_sender_and_receiver() {
    most_orders(4, || {
        let channel = Channel::new(Settle::Before);
        let receiver = thread::spawn(move || channel.receive(0));
        let sender = thread::spawn(move || channel.send(1, 7));
        channel.close();
        let (sent, received) = (sender.join().unwrap(), receiver.join().unwrap());
        assert_eq!(received, sent.then_some(7), "received if and only if sent");
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_waiter_that_commits_after_releasing_the_lock() {
    every_order(|| one_to_one(Settle::After));
}
