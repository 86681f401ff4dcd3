//! The state word of a join packet: a copy of the protocol of `block::goroutine::packet`, where the
//! word is part of a generic record that is freed manually and makes Gs ready through the
//! scheduler.
//!
//! The steps and the states are the same, without the time limit; a G is made ready by a note. A
//! waiter sees the result, and no waiter waits forever.

use super::item::{Item, assert_all_taken};
use crate::explore::{every_order, leak};
use crate::protocol::note::Note;
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::weakness::{Weakness, weaken};
use loom::cell::UnsafeCell;
use loom::thread;

const EMPTY: u32 = 0;
const DONE: u32 = 1;
const DETACHED: u32 = 2;
const WAKER: u32 = 3;
const LOCKED: u32 = 4;
/// Stands for the address of a G, which is every other value of the real word.
const WAITER: u32 = 5;

struct Packet {
    state: AtomicU32,
    result: &'static Item,
    /// The waiting G. It is saved before it is published.
    waiter: &'static Item,
    ready: Note,
    waker: UnsafeCell<Option<u32>>,
    woken: Note,
    /// Stands for the record, which is freed once, when no thread uses it.
    record: &'static Item,
}

// SAFETY: loom checks the accesses to the cells.
unsafe impl Sync for Packet {}
// SAFETY: as above.
unsafe impl Send for Packet {}

impl Packet {
    fn new() -> &'static Packet {
        leak(Packet {
            state: AtomicU32::new(EMPTY),
            result: Item::unsaved(0),
            waiter: Item::unsaved(1),
            ready: Note::new(),
            waker: UnsafeCell::new(None),
            woken: Note::new(),
            record: Item::new(2),
        })
    }

    fn set_waker(&self, waker: Option<u32>) -> Option<u32> {
        // SAFETY: loom panics if there is a concurrent access.
        self.waker.with_mut(|place| unsafe { std::mem::replace(&mut *place, waker) })
    }

    /// Completes the goroutine: publishes the result and wakes the waiter.
    fn complete(&self) {
        self.result.save();
        loop {
            // PAIR packet: as in `block::goroutine::packet`.
            let found = self.state.load(Ordering::Acquire);
            if found == LOCKED {
                thread::yield_now();
                continue;
            }
            let to = if found == WAKER { LOCKED } else { DONE };
            // PAIR packet: as in `block::goroutine::packet`.
            let changed =
                self.state.compare_exchange(found, to, Ordering::AcqRel, Ordering::Relaxed);
            if changed.is_err() {
                continue;
            }
            match found {
                EMPTY => {}
                DETACHED => self.record.run(),
                WAKER => self.wake_future(),
                _ => {
                    self.waiter.run();
                    self.ready.wake();
                }
            }
            return;
        }
    }

    fn wake_future(&self) {
        let waker = self.set_waker(None);
        // PAIR packet: as in `block::goroutine::packet`.
        self.state.store(DONE, Ordering::Release);
        if waker.is_some() {
            self.woken.wake();
        }
    }

    fn is_done(&self) -> bool {
        // PAIR packet: as in `block::goroutine::packet`.
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Waits for the end of the goroutine, as the owner of the handle.
    fn wait(&self) {
        if self.is_done() {
            return;
        }
        self.waiter.save();
        // PAIR packet: as in `block::goroutine::packet`.
        let waits =
            self.state.compare_exchange(EMPTY, WAITER, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if waits {
            self.ready.sleep(None);
        }
    }

    /// Polls as a future does. Returns whether the goroutine has ended.
    fn poll(&self, waker: u32) -> bool {
        loop {
            // PAIR packet: as in `block::goroutine::packet`.
            let found = self.state.load(Ordering::Acquire);
            match found {
                DONE => return true,
                EMPTY | WAKER => {}
                _ => {
                    thread::yield_now();
                    continue;
                }
            }
            // PAIR packet: as in `block::goroutine::packet`.
            let locked =
                self.state.compare_exchange(found, LOCKED, Ordering::Acquire, Ordering::Relaxed);
            if locked.is_ok() {
                self.set_waker(Some(waker));
                // PAIR packet: as in `block::goroutine::packet`.
                self.state.store(WAKER, Ordering::Release);
                return false;
            }
        }
    }

    /// Drops the handle.
    fn drop_handle(&self) {
        let mut from = EMPTY;
        loop {
            let to = if from == WAKER { LOCKED } else { DETACHED };
            // PAIR packet: as in `block::goroutine::packet`.
            match self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(WAKER) => {
                    self.set_waker(None);
                    // PAIR packet: as in `block::goroutine::packet`.
                    self.state.store(EMPTY, Ordering::Release);
                    from = EMPTY;
                }
                Ok(_) => return,
                Err(DONE) => return self.record.run(),
                Err(WAKER) => from = WAKER,
                Err(_) => {
                    from = EMPTY;
                    thread::yield_now();
                }
            }
        }
    }
}

/// Runs the end of a goroutine against `handle`, which uses its handle.
fn against(handle: fn(&Packet)) {
    let packet = Packet::new();
    let goroutine = thread::spawn(move || packet.complete());
    handle(packet);
    packet.drop_handle();
    goroutine.join().unwrap();
    assert_all_taken(&[packet.record]);
}

fn join(packet: &Packet) {
    packet.wait();
    assert!(packet.is_done());
    packet.result.run();
}

/// Polls with one waker, then with another, then waits to be woken.
fn future(packet: &Packet) {
    if !packet.poll(1) && !packet.poll(2) {
        packet.woken.sleep(None);
    }
    assert!(packet.is_done());
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
#[should_panic(expected = "is_done")]
fn broken_by_a_word_read_without_order() {
    let _weak = weaken(Weakness::Load);
    every_order(|| against(join));
}
