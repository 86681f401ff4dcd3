//! The end of a goroutine against its handle, which joins, is polled or is dropped, and against the
//! alarm of a join with a time limit.
//!
//! The word is the product's (`protocol::join_word`); its packet is a few cells that are never
//! freed, and a G is made ready by a note. A waiter sees the result and is made ready once, no
//! waiter waits forever, and the record is freed once.

use super::g::G;
use super::item::{Item, assert_all_taken};
use crate::explore::{every_order, exactly_these_orders, leak, most_orders};
use crate::protocol::join_word::{Completed, JoinWord};
use crate::protocol::note::Note;
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::thread;

struct Packet {
    word: JoinWord<G>,
    result: &'static Item,
    waker: Cell<Option<u32>>,
    woken: Note,
    /// Stands for the record, which is freed once, when no thread uses it.
    record: &'static Item,
}

impl Packet {
    fn new() -> &'static Packet {
        leak(Packet {
            word: JoinWord::new(),
            result: Item::unsaved(0),
            waker: Cell::new(None),
            woken: Note::new(),
            record: Item::new(2),
        })
    }

    /// Ends the goroutine, as the functions `run` and `complete` of a packet do.
    fn complete(&self) {
        self.result.save();
        if self.word.is_detached() {
            return self.free();
        }
        match self.word.complete(|| self.waker.replace(None)) {
            Completed::Detached => self.free(),
            Completed::Unawaited => {}
            Completed::Waiter(g) => g.ready(),
            Completed::Waker(None) => {}
            Completed::Waker(Some(_)) => self.woken.wake(),
        }
    }

    /// Frees the record. loom reports a thread that still uses the waker.
    fn free(&self) {
        self.record.run();
        self.waker.set(None);
    }

    /// Waits for the end of the goroutine, as the owner of the handle.
    fn wait(&self, g: &'static G) {
        if !self.word.is_done() {
            self.park(g);
        }
    }

    fn park(&self, g: &'static G) {
        g.save();
        if self.word.commit(g) {
            g.sleep();
        }
    }

    /// Parks with a time limit, which is reached at any time. The caller then clears the limit.
    fn park_until(&'static self, g: &'static G) {
        let alarm = thread::spawn(move || {
            if let Some(g) = self.word.time_out() {
                g.ready();
            }
        });
        self.park(g);
        // The product stops the alarm: after that, the alarm's thread no longer uses the word.
        alarm.join().unwrap();
    }

    /// Polls as a future does. Returns whether the goroutine has ended.
    fn poll(&self, waker: u32) -> bool {
        self.word.store_waker(|| self.waker.replace(Some(waker))).is_none()
    }

    fn drop_handle(&self) {
        if !self.word.detach(|| self.waker.set(None)) {
            self.free();
        }
    }
}

/// Runs the end of a goroutine against `handle`, which uses its handle.
fn against(handle: fn(&'static Packet)) {
    let packet = Packet::new();
    let goroutine = thread::spawn(move || packet.complete());
    handle(packet);
    packet.drop_handle();
    goroutine.join().unwrap();
    assert_all_taken(&[packet.record]);
}

fn join(packet: &Packet) {
    packet.wait(G::new(1));
    assert!(packet.word.is_done());
    packet.result.run();
}

/// Joins with a time limit; if that is reached, joins without a limit.
fn join_twice(packet: &'static Packet) {
    packet.park_until(G::new(3));
    packet.word.clear_timed_out();
    join(packet);
}

/// Waits until the time limit is reached, while the goroutine does not end.
fn reach_the_limit() {
    let packet = Packet::new();
    packet.park_until(G::new(3));
    packet.word.clear_timed_out();
    assert!(!packet.word.is_done());
    packet.complete();
    join(packet);
}

/// Polls with one waker, then with another, then waits to be woken.
fn future(packet: &Packet) {
    if !packet.poll(1) && !packet.poll(2) {
        packet.woken.sleep(None);
    }
    assert!(packet.word.is_done());
    packet.result.run();
}

#[test]
fn a_join_sees_the_result() {
    every_order(|| against(join));
}

#[test]
fn a_future_is_woken_and_sees_the_result() {
    every_order(|| against(future));
}

#[test]
fn a_record_is_freed_once_by_its_last_user() {
    every_order(|| against(|_| {}));
}

#[test]
fn a_future_that_is_dropped_leaves_no_waker() {
    every_order(|| against(|packet| _ = packet.poll(1)));
}

#[test]
fn a_join_that_reaches_its_time_limit_is_made_ready() {
    every_order(reach_the_limit);
}

#[test]
fn a_join_whose_time_limit_meets_the_end_is_made_ready_once() {
    most_orders(3, || against(join_twice));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_word_changed_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    every_order(|| against(join));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_waker_published_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(|| against(future));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_word_read_without_order() {
    let _weak = weaken(Weakness::LoadOfUsize);
    every_order(|| against(join));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_time_limit_that_takes_the_waiter_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    every_order(reach_the_limit);
}

#[test]
#[should_panic(expected = "is_done")]
fn broken_by_a_time_limit_that_is_not_cleared() {
    exactly_these_orders(1, || {
        against(|packet| {
            packet.park_until(G::new(3));
            join(packet);
        });
    });
}
