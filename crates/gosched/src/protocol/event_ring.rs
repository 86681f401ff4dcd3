//! A ring of records that the scheduler writes and any thread reads, without a lock: when the ring
//! is full, a new record replaces the oldest.
//!
//! Records are numbered from 0. Record *n* is in slot *n* modulo the number of slots. A slot has a
//! version: 2*n* + 1 while record *n* is being written, 2*n* + 2 once it is complete.
//!
//! - Writer: 1. takes the next number; 2. marks the slot as being written; 3. writes the words;
//!   4. marks the record as complete.
//! - Reader of record *n*: 1. reads the version, which must be that of record *n*, complete; 2.
//!   reads the words; 3. reads the version again, which must not have changed.
//!
//! A signal can interrupt a writer between any two steps, and the signal handler may write records
//! of its own. They have other numbers, and so other slots. Only a handler that writes as many
//! records as the ring has slots comes to the slot of the interrupted writer: it finds the slot
//! marked, and drops its record. Threads that share a ring (*many writers*) perform step 2 by a
//! compare-and-exchange, so that two of them never write to one slot at the same time. In a ring
//! with one writer, a plain store suffices: a handler that runs in the middle of step 2 has ended
//! before the interrupted thread continues.
//!
//! A dropped record leaves its slot with an earlier version, as a record does that is still being
//! written. A reader cannot tell the two apart: see `probe::recording`.
//!
//! A ring never waits and never allocates.

use crate::sys::atomic::{AtomicU64, Ordering};

/// A place for one record (see the top of this file). Zeroed memory is an empty slot.
#[derive(Debug)]
pub(crate) struct Slot<const WORDS: usize> {
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Slot<WORDS> {
    #[cfg(test)]
    pub(crate) fn new() -> Slot<WORDS> {
        Slot { version: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// Who writes to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// One thread, and the signal handlers that run on it.
    One,
    /// Any number of threads.
    Many,
}

/// A ring of records of `WORDS` words each (see the top of this file).
#[derive(Debug)]
pub(crate) struct EventRing<const WORDS: usize> {
    /// The number of the next record.
    next: AtomicU64,
    writers: Writers,
    slots: &'static [Slot<WORDS>],
}

/// The result of [`EventRing::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read<const WORDS: usize> {
    Record([u64; WORDS]),
    /// The record is not complete yet, or it was dropped.
    NotYet,
    /// A later record has taken the slot.
    Overwritten,
}

impl<const WORDS: usize> EventRing<WORDS> {
    /// Creates a ring. The number of slots must be a power of two.
    pub(crate) fn new(slots: &'static [Slot<WORDS>], writers: Writers) -> EventRing<WORDS> {
        assert!(slots.len().is_power_of_two());
        EventRing { next: AtomicU64::new(0), writers, slots }
    }

    fn slot(&self, number: u64) -> &'static Slot<WORDS> {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// Writes a record. Returns false if the record was dropped: another record is being written to
    /// its slot, or a later one was.
    #[inline]
    pub(crate) fn write(&self, words: [u64; WORDS]) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(number);
        let writing = 2 * number + 1;
        let before = slot.version.load(Ordering::Relaxed);
        if before % 2 == 1 || before > writing {
            return false;
        }
        match self.writers {
            Writers::One => slot.version.store(writing, Ordering::Relaxed),
            Writers::Many => {
                // PAIR ring-record: the words of the previous record were written before.
                let (done, failed) = (Ordering::Acquire, Ordering::Relaxed);
                if slot.version.compare_exchange(before, writing, done, failed).is_err() {
                    return false;
                }
            }
        }
        for (place, word) in slot.words.iter().zip(words) {
            // PAIR ring-words: a reader that sees the word also sees the mark above.
            place.store(word, Ordering::Release);
        }
        // PAIR ring-record: publishes the words, to readers and to the next writer of the slot.
        slot.version.store(writing + 1, Ordering::Release);
        true
    }

    /// Reads record `number`.
    pub(crate) fn read(&self, number: u64) -> Read<WORDS> {
        let slot = self.slot(number);
        let complete = 2 * number + 2;
        // PAIR ring-record: sees the words of the record.
        let version = slot.version.load(Ordering::Acquire);
        if version < complete {
            return Read::NotYet;
        }
        // PAIR ring-words: the version is read again after the words.
        let words = slot.words.each_ref().map(|word| word.load(Ordering::Acquire));
        if version != complete || slot.version.load(Ordering::Relaxed) != complete {
            return Read::Overwritten;
        }
        Read::Record(words)
    }

    /// Returns the number of the next record that a writer will take.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Returns the number of the oldest record that may still be in the ring.
    pub(crate) fn oldest(&self) -> u64 {
        self.next().saturating_sub(self.slots.len() as u64)
    }
}
