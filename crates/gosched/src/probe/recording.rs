//! Reads rings of events. Each recording has a cursor for each ring, so several recordings can be
//! on at the same time. A reader never changes a ring.

use super::recorder::{Record, Ring};
use crate::protocol::event_ring::Read;
use std::ptr;
use std::time::{Duration, Instant};

/// How long a reader waits for a record that is not complete. A thread writes a record in a few
/// nanoseconds, but the system may take the CPU away from it for long. A record that is not
/// complete after this time counts as lost, and so do those that follow directly and are not
/// complete either.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far a recording has read a ring.
#[derive(Debug)]
pub(crate) struct Cursor {
    ring: &'static Ring,
    /// The number of the next record to read.
    next: u64,
    /// Since when records are known to be incomplete: that record, or the one before, which was
    /// given up.
    incomplete_since: Option<Instant>,
}

impl Cursor {
    /// Creates a cursor that skips the records that the ring has now.
    pub(crate) fn at_end(ring: &'static Ring) -> Cursor {
        Cursor { ring, next: ring.records.next(), incomplete_since: None }
    }

    /// Creates a cursor at the first record that the ring ever had.
    pub(crate) fn at_start(ring: &'static Ring) -> Cursor {
        Cursor { ring, next: 0, incomplete_since: None }
    }

    pub(crate) fn is_of(&self, ring: &'static Ring) -> bool {
        ptr::eq(self.ring, ring)
    }

    /// Passes the records that are complete to `each`, up to the last that a thread has begun.
    /// Stops at a record that is not complete, unless its thread has had enough time. Returns
    /// whether there is such a record, and how many records are lost.
    pub(crate) fn read(&mut self, mut each: impl FnMut(Record)) -> (bool, u64) {
        let records = &self.ring.records;
        let (end, mut lost) = (records.next(), 0);
        while self.next < end {
            match records.read(self.next) {
                Read::Record(words) => {
                    self.incomplete_since = None;
                    match Record::from_words(words) {
                        Some(record) => each(record),
                        None => lost += 1,
                    }
                }
                Read::Overwritten => {
                    // The oldest records are about to be overwritten as well, so skip some more.
                    let next = records.oldest().max(self.next + 1).min(end);
                    lost += next - self.next;
                    self.next = next;
                    self.incomplete_since = None;
                    continue;
                }
                Read::NotYet => {
                    let since = *self.incomplete_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < PATIENCE {
                        return (true, lost);
                    }
                    lost += 1;
                }
            }
            self.next += 1;
        }
        (false, lost)
    }
}
