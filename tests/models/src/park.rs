//! `park` against `unpark`: the thread that runs a G after it was made ready sees its saved
//! registers.

use super::g::G;
use super::item::{Item, assert_all_taken};
use crate::explore::{every_order, leak, most_orders, pause};
use crate::protocol::park_token::ParkToken;
use crate::protocol::run_queue::RunQueue;
use crate::sys::weakness::{Weakness, weaken};
use loom::thread;

const ID: u64 = 7;

/// A G and its token.
struct Parked {
    g: &'static Item,
    token: ParkToken,
}

impl Parked {
    fn new() -> &'static Parked {
        let token = ParkToken::new();
        token.begin(ID);
        leak(Parked { g: Item::unsaved(0), token })
    }

    /// Switches away from the G, and commits. The G continues at once if there is a token.
    fn depart(&self) {
        self.g.save();
        if !self.token.park(ID) {
            self.g.run();
            assert!(self.token.take(ID), "park was refused but there is no token");
        }
    }

    /// Like [`Parked::depart`], but commits before the G is saved.
    fn depart_committed_too_early(&self) {
        let parked = self.token.park(ID);
        self.g.save();
        if !parked {
            self.g.run();
        }
    }
}

fn against_one_unpark(depart: fn(&Parked)) {
    let parked = Parked::new();
    let other = thread::spawn(move || {
        if parked.token.unpark(ID) {
            parked.g.run();
        }
    });
    depart(parked);
    other.join().unwrap();
    assert_all_taken(&[parked.g]);
}

#[test]
fn a_parked_g_is_saved_when_it_is_made_ready() {
    every_order(|| against_one_unpark(Parked::depart));
}

#[test]
fn a_g_is_made_ready_once_by_two_concurrent_unparks() {
    every_order(|| {
        let parked = Parked::new();
        let others: Vec<_> = (0..2).map(|_| parked).collect();
        let others = others.into_iter().map(|other| {
            thread::spawn(move || {
                if other.token.unpark(ID) {
                    other.g.run();
                }
            })
        });
        let others: Vec<_> = others.collect();
        parked.depart();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_all_taken(&[parked.g]);
    });
}

#[test]
fn the_taker_of_a_token_sees_what_the_unparker_wrote() {
    every_order(|| {
        let (parked, left) = (Parked::new(), Item::unsaved(1));
        let other = thread::spawn(move || {
            left.save();
            assert!(!parked.token.unpark(ID), "no goroutine has parked");
        });
        if parked.token.take(ID) {
            left.run();
        }
        other.join().unwrap();
    });
}

/// Parks a G on one M, makes it ready into the queue of a second M, and lets a third M steal it.
fn by_way_of_a_queue() {
    let parked = Parked::new();
    let queue = leak(RunQueue::<Item, 2>::new());
    let other = thread::spawn(move || {
        if parked.token.unpark(ID) {
            assert!(queue.push_next(parked.g).is_none());
        }
    });
    let thief = thread::spawn(move || {
        let own = RunQueue::new();
        if let Some(g) = queue.steal_into(&own, Some(pause)).map(|stolen| stolen.g) {
            g.run();
        }
    });
    parked.depart();
    other.join().unwrap();
    thief.join().unwrap();
    if let Some((g, _)) = queue.take() {
        g.run();
    }
    assert_all_taken(&[parked.g]);
}

#[test]
fn a_parked_g_is_saved_when_a_thief_runs_it() {
    every_order(by_way_of_a_queue);
}

/// Parks with a time limit that passes at any moment, against an unpark. `clears`: the G clears the
/// mark of its time limit.
fn with_a_limit(clears: bool) {
    let (g, token) = (G::new(0), leak(ParkToken::new()));
    token.begin(ID);
    let unparker = thread::spawn(move || {
        if token.unpark(ID) {
            g.ready();
        }
    });
    if !token.take(ID) {
        let timer = thread::spawn(move || {
            if token.expire(ID) {
                g.ready();
            }
        });
        g.save();
        if token.park(ID) {
            g.sleep();
        }
        timer.join().unwrap();
        if clears {
            token.unexpire(ID);
        }
        token.take(ID);
    }
    unparker.join().unwrap();
    token.take(ID);
    assert!(token.park(ID), "the next park must wait: there is no token");
}

#[test]
fn a_park_with_a_time_limit_ends_once_and_leaves_no_mark() {
    most_orders(4, || with_a_limit(true));
}

#[test]
#[should_panic(expected = "the next park must wait")]
fn broken_by_a_time_limit_that_is_not_cleared() {
    most_orders(4, || with_a_limit(false));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_token_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    every_order(|| against_one_unpark(Parked::depart));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_commit_before_the_save() {
    every_order(|| against_one_unpark(Parked::depart_committed_too_early));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_run_next_published_without_order() {
    let _weak = weaken(Weakness::Swap);
    every_order(by_way_of_a_queue);
}
