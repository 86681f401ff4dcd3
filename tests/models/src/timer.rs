//! Stopping a timer against firing it: a copy of the protocol of `gmp::timer`, whose heaps are
//! static, which loom's locks cannot be.
//!
//! The steps are the same, with one timer. The timer fires or is stopped, never both. When `stop`
//! returns, the record belongs to the caller: no other thread uses it.

use crate::explore::{every_order, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::Mutex;
use loom::thread;

/// The timer is in no heap.
const NONE: u32 = 2;

/// When the firing thread records that the timer is in no heap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Out {
    /// After it has fired.
    Late,
    /// Broken: before it fires.
    Early,
}

struct Timer {
    /// The heap that contains the timer.
    heap: AtomicU32,
    /// Stands for the record that contains the timer, in the frame of the thread that started it.
    record: Cell<u32>,
}

/// Two heaps, each with room for one timer.
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
        // PAIR timer-heap: as in `gmp::timer`.
        timer.heap.store(heap, Ordering::Release);
    }

    /// Fires the timer in a heap. Returns the number of timers fired.
    fn fire(&self, heap: u32) -> u32 {
        let mut place = self.heaps[heap as usize].lock().unwrap();
        let Some(timer) = place.take() else { return 0 };
        let out = || {
            // PAIR timer-heap: as in `gmp::timer`.
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
            // PAIR timer-heap: as in `gmp::timer`.
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
fn broken_by_a_timer_that_leaves_its_heap_before_it_fires() {
    every_order(|| stop_against_fire(Out::Early));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_timer_that_leaves_its_heap_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(|| stop_against_fire(Out::Late));
}
