//! The ring of a run queue: each item is taken exactly once, by the owner or by a thief.
//!
//! Broken variants: if `tail` is published or read without order, a thief takes a slot before it
//! sees what was written to it, and the item is lost. loom cannot detect a missing `runq-head`:
//! without it a taker may read a slot after it has given the slot up, which is load buffering.

use super::item::{Item, assert_all_taken};
use crate::explore::{every_order, leak, most_orders};
use crate::protocol::run_queue::{CAPACITY, RunQueue};
use crate::sys::weakness::{Weakness, weaken};
use loom::thread::{self, JoinHandle};

const _: () = assert!(CAPACITY >= 4, "the queues of the models must not exceed CAPACITY");

/// The start of the counters: they wrap with the first push.
const WRAPS: u32 = u32::MAX;

type Queue<const CAP: usize> = &'static RunQueue<Item, CAP>;

fn queue<const CAP: usize>() -> Queue<CAP> {
    leak(RunQueue::starting_at(WRAPS))
}

/// Starts a thief that steals `times` times, each time into an empty queue.
fn thief<const CAP: usize>(victim: Queue<CAP>, times: usize) -> JoinHandle<()> {
    thread::spawn(move || {
        let own = RunQueue::starting_at(WRAPS);
        for _ in 0..times {
            if let Some(item) = victim.steal_into(&own, None).map(|stolen| stolen.g) {
                item.run();
            }
            run_all(&own);
        }
    })
}

fn run_all<const CAP: usize>(queue: &RunQueue<Item, CAP>) {
    while let Some((item, _)) = queue.take() {
        item.run();
    }
    assert!(queue.is_empty());
}

/// Pushes `item` as the scheduler does: if the queue is full, its older half and `item` go
/// elsewhere. Returns whether the queue was full.
fn push_or_overflow<const CAP: usize>(queue: &RunQueue<Item, CAP>, item: &'static Item) -> bool {
    let mut half = [None; CAP];
    while !queue.push(item) {
        if queue.take_half(&mut half).is_some() {
            half.iter().flatten().for_each(|item| item.run());
            item.run();
            return true;
        }
    }
    false
}

/// Runs an owner against thieves. The owner pushes `pushes` items, takes an item after each push
/// whose number is in `takes`, and takes what is left at the end.
fn owner_against<const CAP: usize>(thieves: usize, times: usize, pushes: usize, takes: &[usize]) {
    let queue = queue::<CAP>();
    let thieves: Vec<_> = (0..thieves).map(|_| thief(queue, times)).collect();
    let mut items = Vec::new();
    for number in 0..pushes {
        items.push(Item::new(number));
        push_or_overflow(queue, items[number]);
        if takes.contains(&number)
            && let Some((item, _)) = queue.take()
        {
            item.run();
        }
    }
    for thief in thieves {
        thief.join().unwrap();
    }
    run_all(queue);
    assert_all_taken(&items);
}

#[test]
fn an_owner_and_a_thief_take_each_item_once() {
    every_order(|| owner_against::<2>(1, 2, 3, &[1, 2]));
}

#[test]
fn a_thief_takes_two_of_four_and_publishes_one() {
    every_order(|| owner_against::<4>(1, 1, 4, &[3]));
}

#[test]
fn an_owner_and_two_thieves_take_each_item_once() {
    most_orders(4, || owner_against::<2>(2, 1, 2, &[1]));
}

#[test]
fn an_owner_and_two_thieves_share_four_slots() {
    most_orders(3, || owner_against::<4>(2, 1, 4, &[2, 3]));
}

#[test]
fn a_full_queue_loses_nothing_to_a_thief() {
    every_order(|| owner_against::<2>(1, 1, 3, &[]));
}

#[test]
fn a_full_queue_of_four_loses_nothing_to_two_thieves() {
    most_orders(2, || owner_against::<4>(2, 1, 5, &[]));
}

#[test]
fn items_stolen_from_a_thief_are_taken_once() {
    every_order(|| {
        let (first, second) = (queue::<4>(), queue::<4>());
        let items: Vec<_> = (0..4).map(Item::new).collect();
        items.iter().for_each(|item| assert!(first.push(item)));
        let robbed = thread::spawn(move || {
            if let Some(item) = first.steal_into(second, None).map(|stolen| stolen.g) {
                item.run();
            }
            run_all(second);
        });
        thief(second, 1).join().unwrap();
        robbed.join().unwrap();
        run_all(first);
        assert_all_taken(&items);
    });
}

#[test]
#[should_panic(expected = "is lost")]
fn broken_by_a_tail_published_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(|| owner_against::<2>(1, 1, 1, &[]));
}

#[test]
#[should_panic(expected = "is lost")]
fn broken_by_a_tail_read_without_order() {
    let _weak = weaken(Weakness::Load);
    every_order(|| owner_against::<2>(1, 1, 1, &[]));
}
