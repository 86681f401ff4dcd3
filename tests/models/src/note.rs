//! An M that sleeps on its note: a wake-up is never lost, and the M sees what was written before
//! it.

use crate::explore::{every_order, leak, most_orders};
use crate::protocol::note::Note;
use crate::sys::weakness::{Weakness, weaken};
use loom::cell::UnsafeCell;
use loom::thread;

/// A note, and the value that its waker leaves, which stands for [`M::next_p`](crate::gmp).
struct Sleeper {
    note: Note,
    given: UnsafeCell<u32>,
}

// SAFETY: loom checks the accesses to the cell.
unsafe impl Sync for Sleeper {}
// SAFETY: as above.
unsafe impl Send for Sleeper {}

impl Sleeper {
    fn new() -> &'static Sleeper {
        leak(Sleeper { note: Note::new(), given: UnsafeCell::new(0) })
    }

    fn give(&self, value: u32) {
        // SAFETY: loom panics if there is a concurrent access.
        self.given.with_mut(|given| unsafe { *given = value });
        self.note.wake();
    }

    fn sleep(&self) -> u32 {
        assert!(self.note.sleep(None));
        // SAFETY: loom panics if there is a concurrent write.
        self.given.with(|given| unsafe { *given })
    }
}

fn is_woken_once() {
    let sleeper = Sleeper::new();
    let waker = thread::spawn(move || sleeper.give(1));
    assert_eq!(sleeper.sleep(), 1);
    waker.join().unwrap();
}

#[test]
fn a_wake_up_is_never_lost() {
    every_order(is_woken_once);
}

/// The second wake-up comes only when the sleeper sleeps again, since a waker finds the sleeper in
/// a list of sleepers: two wake-ups at once would count as one.
#[test]
fn two_wake_ups_in_a_row_end_two_sleeps() {
    every_order(|| {
        let (sleeper, back) = (Sleeper::new(), Sleeper::new());
        let waker = thread::spawn(move || {
            sleeper.give(1);
            assert_eq!(back.sleep(), 7);
            sleeper.give(2);
        });
        assert_eq!(sleeper.sleep(), 1);
        back.give(7);
        assert_eq!(sleeper.sleep(), 2);
        waker.join().unwrap();
    });
}

/// The system call of the first waker may come when the sleeper sleeps for the second time.
#[test]
fn two_wakers_in_a_row_both_wake_the_sleeper() {
    most_orders(3, || {
        let (sleeper, back) = (Sleeper::new(), Sleeper::new());
        let first = thread::spawn(move || sleeper.give(1));
        let second = thread::spawn(move || {
            back.sleep();
            sleeper.give(2);
        });
        assert_eq!(sleeper.sleep(), 1);
        back.give(7);
        assert_eq!(sleeper.sleep(), 2);
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_sleep_that_checks_the_word_in_a_separate_step() {
    let _weak = weaken(Weakness::Futex);
    every_order(is_woken_once);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_word_set_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(is_woken_once);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_word_read_without_order() {
    let _weak = weaken(Weakness::Load);
    every_order(is_woken_once);
}
