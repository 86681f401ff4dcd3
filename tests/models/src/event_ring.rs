//! Threads that record events, against a reader: whatever the reader gets is one whole record, and
//! records of one thread come in order.

use crate::explore::{every_order, leak};
use crate::protocol::event_ring::{EventRing, Read, Slot, Writers};
use crate::sys::weakness::{Weakness, weaken};
use loom::thread;

/// Each record has two words with the same value.
type Ring = EventRing<2>;

fn ring(slots: usize, writers: Writers) -> &'static Ring {
    let slots: Vec<Slot<2>> = (0..slots).map(|_| Slot::new()).collect();
    leak(EventRing::new(leak(slots), writers))
}

/// Reads all records that the ring has when each of them is read.
fn read_all(ring: &Ring, count: u64) -> Vec<u64> {
    let records = (0..count).filter_map(|number| match ring.read(number) {
        Read::Record([one, other]) => {
            assert_eq!(one, other, "a record is torn");
            Some(one)
        }
        Read::NotYet | Read::Overwritten => None,
    });
    records.collect()
}

fn write_both(ring: &Ring, value: u64) -> bool {
    ring.write([value, value])
}

/// One thread writes three records into a ring of two slots. The reader is the spawned thread: loom
/// remembers one access to each word, and a writer that loads a word before storing to it hides an
/// earlier load of the reader.
fn one_writer() {
    let ring = ring(2, Writers::One);
    let reader = thread::spawn(move || {
        let seen = read_all(ring, 3);
        assert!(seen.is_sorted(), "{seen:?}");
    });
    for value in 1..=3 {
        assert!(write_both(ring, value));
    }
    reader.join().unwrap();
    assert_eq!(ring.read(0), Read::Overwritten);
    assert_eq!(read_all(ring, 3), [2, 3]);
    assert_eq!((ring.oldest(), ring.next()), (1, 3));
}

/// Two threads write two records each into a ring of two slots.
fn two_writers(writers: Writers) {
    let ring = ring(2, writers);
    let write = move |first: u64| {
        let written = [first, first + 1].map(|value| write_both(ring, value));
        written.into_iter().filter(|written| *written).count()
    };
    let other = thread::spawn(move || write(10));
    let written = write(20) + other.join().unwrap();
    assert!(written >= 2);
    read_all(ring, 4);
}

/// Two threads write into a ring of one slot, while a third reads.
fn two_writers_and_a_reader() {
    let ring = ring(1, Writers::Many);
    let reader = thread::spawn(move || drop(read_all(ring, 2)));
    let other = thread::spawn(move || write_both(ring, 1));
    let written = [write_both(ring, 2), other.join().unwrap()];
    assert!(written.contains(&true));
    reader.join().unwrap();
    assert!(read_all(ring, 2).len() <= 1);
}

#[test]
fn a_reader_gets_whole_records_of_one_thread_in_order() {
    every_order(one_writer);
}

#[test]
fn threads_that_share_a_ring_never_write_to_one_slot_together() {
    every_order(|| two_writers(Writers::Many));
}

#[test]
fn a_reader_gets_whole_records_of_threads_that_share_a_ring() {
    every_order(two_writers_and_a_reader);
}

#[test]
#[should_panic(expected = "a record is torn")]
fn broken_by_threads_that_share_a_ring_for_one_writer() {
    every_order(|| two_writers(Writers::One));
}

#[test]
#[should_panic(expected = "a record is torn")]
fn broken_by_a_mark_in_two_steps() {
    every_order(|| {
        let _weakened = weaken(Weakness::ExchangeInTwoSteps);
        two_writers(Writers::Many);
    });
}

#[test]
#[should_panic(expected = "a record is torn")]
fn broken_by_words_written_without_order() {
    every_order(|| {
        let _weakened = weaken(Weakness::Store);
        one_writer();
    });
}

#[test]
#[should_panic(expected = "a record is torn")]
fn broken_by_words_read_without_order() {
    every_order(|| {
        let _weakened = weaken(Weakness::LoadOfU64);
        one_writer();
    });
}
