//! Stopping a timer against firing it.
//!
//! The place of a timer is the product's (`protocol::timer_place`). A heap is loom's mutex, with
//! room for one timer. The timer fires or is stopped, never both. When `stop` returns, the record
//! belongs to the caller: no other thread uses it.

use crate::explore::{every_order, leak, most_orders};
use crate::protocol::timer_place::{AfterFire, TimerPlace};
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::Mutex;
use loom::thread;

/// When the firing thread records that the timer is in no heap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Out {
    /// After it has fired.
    Late,
    /// Broken: before it fires.
    Early,
}

struct Timer {
    place: TimerPlace<Heap>,
    /// Stands for the record that contains the timer, in the frame of the thread that started it.
    record: Cell<u32>,
}

impl Timer {
    fn new() -> &'static Timer {
        leak(Timer { place: TimerPlace::new(), record: Cell::new(0) })
    }

    fn stop(&self) -> bool {
        self.place.stop(|heap| heap.timer.lock().unwrap(), |_, timer| **timer = None)
    }
}

/// A heap with room for one timer.
struct Heap {
    timer: Mutex<Option<&'static Timer>>,
    out: Out,
}

impl Heap {
    fn new(out: Out) -> &'static Heap {
        leak(Heap { timer: Mutex::new(None), out })
    }

    fn insert(&'static self, timer: &'static Timer) {
        let mut place = self.timer.lock().unwrap();
        *place = Some(timer);
        timer.place.enter(self);
    }

    /// Fires the timer in the heap. Returns the number of timers fired.
    fn fire(&self) -> u32 {
        let mut place = self.timer.lock().unwrap();
        let Some(timer) = *place else { return 0 };
        let mut fire = || {
            timer.record.set(timer.record.get() + 1);
            *place = None;
            AfterFire::Leaves
        };
        match self.out {
            Out::Late => timer.place.fire(fire),
            Out::Early => {
                timer.place.leave_after_fire();
                fire();
            }
        }
        1
    }
}

fn stop_against_fire(out: Out) {
    let (heap, timer) = (Heap::new(out), Timer::new());
    heap.insert(timer);
    let other = thread::spawn(move || heap.fire());
    let stopped = timer.stop();
    // From here on the frame may be freed: the firing thread must no longer use it.
    let fired = timer.record.replace(100);
    assert_eq!(fired, u32::from(!stopped), "the timer either fires or is stopped");
    assert_eq!(other.join().unwrap(), fired);
}

#[test]
fn a_timer_fires_or_is_stopped_and_then_belongs_to_its_owner() {
    every_order(|| stop_against_fire(Out::Late));
}

#[test]
fn a_timer_that_is_set_again_in_another_heap_is_stopped_there() {
    most_orders(4, || {
        let (heaps, timer) = ([(); 2].map(|()| Heap::new(Out::Late)), Timer::new());
        heaps[0].insert(timer);
        let others = heaps.map(|heap| thread::spawn(move || heap.fire()));
        let first = timer.stop();
        heaps[1].insert(timer);
        let second = timer.stop();
        let fired = timer.record.replace(100);
        assert_eq!(fired, u32::from(!first) + u32::from(!second));
        let counted: u32 = others.map(|other| other.join().unwrap()).iter().sum();
        assert_eq!(counted, fired);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_timer_that_leaves_its_heap_before_it_fires() {
    every_order(|| stop_against_fire(Out::Early));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_timer_that_leaves_its_heap_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(|| stop_against_fire(Out::Late));
}
