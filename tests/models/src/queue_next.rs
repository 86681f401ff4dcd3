//! The item in `run_next`: it is kicked to the ring, taken by the owner, or stolen, exactly once,
//! and is visible all the time.

use super::item::{Item, assert_all_taken};
use crate::explore::{every_order, leak, most_orders, pause};
use crate::protocol::run_queue::RunQueue;
use crate::sys::weakness::{Weakness, weaken};
use loom::thread::{self, JoinHandle};

type Queue = &'static RunQueue<Item, 2>;

/// Starts a thief that also takes `run_next`.
fn thief(victim: Queue, times: usize) -> JoinHandle<()> {
    thread::spawn(move || {
        let own = RunQueue::new();
        for _ in 0..times {
            if let Some(item) = victim.steal_into(&own, Some(pause)).map(|stolen| stolen.g) {
                item.run();
            }
            while let Some((item, _)) = own.take() {
                item.run();
            }
        }
    })
}

fn push_next(queue: Queue, item: &'static Item) {
    if let Some(kicked) = queue.push_next(item) {
        assert!(queue.push(kicked));
    }
}

fn run_all(queue: Queue) {
    while let Some((item, _)) = queue.take() {
        item.run();
    }
    assert!(queue.is_empty());
}

fn kicks_against(thieves: usize, times: usize, pushes: usize) {
    let queue: Queue = leak(RunQueue::starting_at(u32::MAX));
    let thieves: Vec<_> = (0..thieves).map(|_| thief(queue, times)).collect();
    let mut items = Vec::new();
    for number in 0..pushes {
        items.push(Item::new(number));
        push_next(queue, items[number]);
    }
    if let Some((item, _)) = queue.take() {
        item.run();
    }
    for thief in thieves {
        thief.join().unwrap();
    }
    run_all(queue);
    assert_all_taken(&items);
}

#[test]
fn a_kicked_item_and_the_item_in_run_next_are_taken_once_each() {
    every_order(|| kicks_against(1, 2, 2));
}

#[test]
fn three_items_in_a_row_are_taken_once_each() {
    every_order(|| kicks_against(1, 2, 3));
}

#[test]
fn two_thieves_take_the_item_in_run_next_once() {
    most_orders(4, || kicks_against(2, 1, 2));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_run_next_published_without_order() {
    let _weak = weaken(Weakness::Swap);
    every_order(|| kicks_against(1, 1, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_run_next_taken_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    every_order(|| kicks_against(1, 1, 1));
}

/// Kicks an item out of `run_next` while another thread checks whether the queue is empty; then the
/// owner takes the item that replaced it.
fn check_emptiness_during_a_kick(by_push_first: bool) {
    let queue: Queue = leak(RunQueue::starting_at(u32::MAX));
    let (first, second) = (Item::new(0), Item::new(1));
    assert!(queue.push_next(first).is_none());
    let asker =
        thread::spawn(move || assert!(!queue.is_empty(), "is_empty missed the kicked item"));
    if by_push_first {
        push_next(queue, second);
    } else {
        // Broken: `run_next` is empty before the item is in the ring.
        let (kicked, _) = queue.take().unwrap();
        assert!(queue.push(kicked));
        assert!(queue.push_next(second).is_none());
    }
    assert!(queue.take().is_some());
    asker.join().unwrap();
}

#[test]
fn a_kicked_item_is_never_missed() {
    every_order(|| check_emptiness_during_a_kick(true));
}

#[test]
#[should_panic(expected = "is_empty missed the kicked item")]
fn broken_by_a_kick_in_two_steps() {
    every_order(|| check_emptiness_during_a_kick(false));
}

#[test]
#[should_panic(expected = "is_empty missed the kicked item")]
fn broken_by_an_emptiness_check_without_order() {
    let _weak = weaken(Weakness::Load);
    every_order(|| check_emptiness_during_a_kick(true));
}

/// Between the two steps of a kick, a thief may take the item that replaced the kicked one; the
/// kicked item is then in neither place for a moment. Nothing depends on it: a push is a
/// submission, and a submitter checks for idle Ps afterwards (see `waking`).
#[test]
#[should_panic(expected = "is_empty missed the kicked item")]
fn a_kicked_item_is_missed_if_a_thief_takes_the_item_that_replaced_it() {
    every_order(|| {
        let queue: Queue = leak(RunQueue::new());
        let (first, second) = (Item::new(0), Item::new(1));
        assert!(queue.push_next(first).is_none());
        let thief = {
            thread::spawn(move || {
                let own = RunQueue::new();
                if let Some(item) = queue.steal_into(&own, Some(pause)).map(|stolen| stolen.g) {
                    item.run();
                }
                if !first.is_taken() {
                    assert!(!queue.is_empty(), "is_empty missed the kicked item");
                }
            })
        };
        push_next(queue, second);
        thief.join().unwrap();
    });
}
