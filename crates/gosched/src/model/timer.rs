//! A timer's stop against its firing, as a twin of `gmp::timer`: heaps there are static, which loom's locks
//! cannot be.
//!
//! Step for step the same, with one timer. It is fired or stopped, never both; and when the stop returns,
//! the record is the caller's: nobody looks at it any more.

use super::{every_order, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::Mutex;
use loom::thread;

/// In no heap.
const NONE: u32 = 2;

/// When whoever fires says that the timer is in no heap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Out {
    /// When it was fired.
    Late,
    /// Broken: before that.
    Early,
}

struct Timer {
    /// The heap it is in.
    heap: AtomicU32,
    /// Stands for the record it is in: the frame of whoever started it.
    record: Cell<u32>,
}

/// Two heaps, each with a place for one timer.
struct Heaps {
    heaps: [Mutex<Option<&'static Timer>>; 2],
    out: Out,
}

impl Heaps {
    fn new(out: Out) -> &'static Heaps {
        leak(Heaps { heaps: [(); 2].map(|()| Mutex::new(None)), out })
    }

    fn insert(&self, heap: u32, timer: &'static Timer) {
        let mut place = self.heaps[heap as usize].lock().unwrap();
        *place = Some(timer);
        // PAIR timer-heap: as the real one.
        timer.heap.store(heap, Ordering::Release);
    }

    /// Fires what is in a heap: 1 if there was something.
    fn fire(&self, heap: u32) -> u32 {
        let mut place = self.heaps[heap as usize].lock().unwrap();
        let Some(timer) = place.take() else { return 0 };
        let out = || {
            // PAIR timer-heap: as the real one.
            timer.heap.store(NONE, Ordering::Release);
        };
        if self.out == Out::Early {
            out();
        }
        timer.record.set(timer.record.get() + 1);
        if self.out == Out::Late {
            out();
        }
        1
    }

    fn stop(&self, timer: &Timer) -> bool {
        loop {
            // PAIR timer-heap: as the real one.
            let heap = timer.heap.load(Ordering::Acquire);
            if heap == NONE {
                return false;
            }
            let mut place = self.heaps[heap as usize].lock().unwrap();
            if timer.heap.load(Ordering::Relaxed) != heap {
                continue;
            }
            *place = None;
            timer.heap.store(NONE, Ordering::Relaxed);
            return true;
        }
    }
}

fn timer() -> &'static Timer {
    leak(Timer { heap: AtomicU32::new(NONE), record: Cell::new(0) })
}

fn stop_against_fire(out: Out) {
    let (heaps, timer) = (Heaps::new(out), timer());
    heaps.insert(0, timer);
    let other = thread::spawn(move || heaps.fire(0));
    let stopped = heaps.stop(timer);
    // The frame may go now: whoever fires must be done with it.
    let fired = timer.record.replace(100);
    assert_eq!(fired, u32::from(!stopped), "fired or stopped");
    assert_eq!(other.join().unwrap(), fired);
}

#[test]
fn a_timer_is_fired_or_stopped_and_then_its_owners() {
    every_order(|| stop_against_fire(Out::Late));
}

#[test]
fn a_timer_that_is_set_again_elsewhere_is_stopped_there() {
    most_orders(4, || {
        let (heaps, timer) = (Heaps::new(Out::Late), timer());
        heaps.insert(0, timer);
        let others = [0, 1].map(|heap| thread::spawn(move || heaps.fire(heap)));
        let first = heaps.stop(timer);
        heaps.insert(1, timer);
        let second = heaps.stop(timer);
        let fired = timer.record.replace(100);
        assert_eq!(fired, u32::from(!first) + u32::from(!second));
        let counted: u32 = others.map(|other| other.join().unwrap()).iter().sum();
        assert_eq!(counted, fired);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_timer_that_is_out_before_it_was_fired() {
    every_order(|| stop_against_fire(Out::Early));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_timer_that_is_out_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(|| stop_against_fire(Out::Late));
}
