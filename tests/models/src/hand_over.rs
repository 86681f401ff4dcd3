//! A P that is handed from M to M, while sysmon checks whether a wake-up was lost: the product's
//! flights (`protocol::hand_over`) and notes.
//!
//! Every receiver gets the P with what its giver wrote, and sysmon never takes a receiver that was
//! woken for one that sleeps.

use crate::explore::{every_order, exactly_these_orders, leak, most_orders};
use crate::protocol::hand_over::{Flight, NextP, hand_over};
use crate::protocol::note::Note;
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::thread;

struct P {
    flight: Flight<M>,
    /// Stands for the data that belongs to the owner of the P.
    owned: Cell<u32>,
}

struct M {
    note: Note,
    next_p: NextP<P>,
}

/// A step that is done wrongly, to check that the model then fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The giver sets the note of the receiver, and does not wake the receiver.
    NoWakeUp,
    /// The receiver acquires the P without ending the flight.
    EndlessFlight,
}

impl P {
    fn new() -> &'static P {
        leak(P { flight: Flight::new(), owned: Cell::new(0) })
    }
}

impl M {
    fn new() -> &'static M {
        leak(M { note: Note::new(), next_p: NextP::new() })
    }

    /// Hands `p`, which the caller owns, to this M.
    fn give(&'static self, p: &'static P, broken: Broken) {
        p.owned.set(p.owned.get() + 1);
        hand_over(p, &p.flight, self, &self.next_p, || match broken {
            Broken::NoWakeUp => self.note.set(),
            _ => self.note.wake(),
        });
    }

    /// Sleeps until the M is given a P, and acquires the P.
    fn acquire(&self, broken: Broken) -> &'static P {
        self.note.sleep(None);
        let p = self.next_p.take().expect("an M that is woken has a P");
        if broken != Broken::EndlessFlight {
            p.flight.end();
        }
        p.owned.set(p.owned.get() + 1);
        p
    }

    /// Checks `p` as sysmon does. Panics if the wake-up of the receiver seems to be lost.
    fn check(p: &P) {
        let Some(flight) = p.flight.current() else { return };
        let is_asleep = p.flight.ask_about_receiver(flight, |receiver| receiver.note.has_sleeper());
        assert_ne!(is_asleep, Some(true), "a wake-up was lost");
    }
}

/// Hands a P to one M, which hands it to a second M, which hands it back to the first.
fn there_and_back() {
    let (p, ms) = (P::new(), [M::new(), M::new()]);
    let first = thread::spawn(move || {
        ms[0].acquire(Broken::Nothing);
        ms[1].give(p, Broken::Nothing);
        ms[0].acquire(Broken::Nothing);
    });
    let second = thread::spawn(move || {
        ms[1].acquire(Broken::Nothing);
        ms[0].give(p, Broken::Nothing);
    });
    ms[0].give(p, Broken::Nothing);
    M::check(p);
    first.join().unwrap();
    second.join().unwrap();
    assert_eq!(p.owned.get(), 6);
}

/// Hands a P to one M, which makes the P idle and sleeps again. Another thread then hands the idle
/// P to a second M.
fn idle_between_two_flights(broken: Broken) {
    let (p, ms, idle) = (P::new(), [M::new(), M::new()], leak(Note::new()));
    let first = thread::spawn(move || {
        ms[0].acquire(broken);
        idle.wake();
        ms[0].acquire(broken);
    });
    let giver = thread::spawn(move || {
        idle.sleep(None);
        ms[1].give(p, broken);
        ms[1].acquire(broken);
        ms[0].give(p, broken);
    });
    ms[0].give(p, broken);
    M::check(p);
    first.join().unwrap();
    giver.join().unwrap();
    assert_eq!(p.owned.get(), 6);
}

/// Hands a P to one M.
fn once(broken: Broken) {
    let (p, m) = (P::new(), M::new());
    let giver = thread::spawn(move || m.give(p, broken));
    let sysmon = thread::spawn(move || M::check(p));
    m.acquire(broken);
    giver.join().unwrap();
    sysmon.join().unwrap();
    assert_eq!(p.owned.get(), 2);
    M::check(p);
}

#[test]
fn a_p_that_is_handed_over_reaches_its_receiver() {
    every_order(|| once(Broken::Nothing));
}

#[test]
fn a_receiver_that_was_woken_is_not_taken_for_one_that_sleeps() {
    most_orders(3, there_and_back);
}

#[test]
fn a_receiver_that_sleeps_again_is_not_taken_for_one_that_was_not_woken() {
    most_orders(3, || idle_between_two_flights(Broken::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_giver_that_does_not_wake_the_receiver() {
    every_order(|| once(Broken::NoWakeUp));
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn sysmon_sees_a_wake_up_that_is_lost() {
    every_order(|| {
        let (p, m) = (P::new(), M::new());
        let receiver = thread::spawn(move || m.acquire(Broken::Nothing));
        m.give(p, Broken::NoWakeUp);
        M::check(p);
        m.note.wake_sleeper();
        receiver.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn broken_by_a_receiver_that_does_not_end_the_flight() {
    exactly_these_orders(3, || idle_between_two_flights(Broken::EndlessFlight));
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn broken_by_a_receiver_read_without_order() {
    let _weak = weaken(Weakness::LoadOfPointer);
    exactly_these_orders(3, there_and_back);
}
