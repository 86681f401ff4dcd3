//! Writes events into rings: each M has a ring, sysmon and the thread maker have one each, and all
//! other threads share one. A thread that records an event waits for nothing, allocates nothing and
//! takes no lock.
//!
//! A record is seven words: the tick, the head (the kind of the event, the P, the thread), and the
//! fields of the event. This module never decides whether a recording is on: its callers test
//! `probe::is_recording`.

use super::event::{EventKind, FIELDS};
use crate::protocol::event_ring::{EventRing, Slot, Writers};
use crate::sys::thread_status;
use crate::sys::{ticks, zeroed};
use gosched_fiber::base::atomic_ref::AtomicRef;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of words of a record.
pub(crate) const WORDS: usize = FIELDS + 2;

/// A ring of events.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) records: EventRing<WORDS>,
    slots: &'static [Slot<WORDS>],
}

/// How many events a ring holds. The memory, 64 bytes an event, is used only once a recording has
/// written to it.
const SLOTS: usize = 1 << 16;

// SAFETY: zero — a zeroed slot is empty; all its fields are atomics.
unsafe impl zeroed::Zeroed for Slot<WORDS> {}

impl Ring {
    /// Creates a ring, which is never freed. Allocates.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(writers: Writers) -> io::Result<&'static Ring> {
        let slots = zeroed::map(SLOTS)?;
        Ok(Box::leak(Box::new(Ring { records: EventRing::new(slots, writers), slots })))
    }

    /// Gives the memory of the records back to the system.
    pub(crate) fn release(&self) {
        zeroed::release(self.slots);
    }
}

/// The rings of sysmon, of the thread maker, and of all other threads that are no Ms.
static THREAD_RINGS: [AtomicRef<Ring>; 3] = [const { AtomicRef::new() }; 3];

/// Number of events that were not recorded: the thread has no ring, or its ring's slot was in use.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Creates the rings of the threads that are no Ms. Single caller at a time.
///
/// # Errors
/// There is no memory.
pub(crate) fn make_thread_rings() -> io::Result<()> {
    for (place, writers) in THREAD_RINGS.iter().zip([Writers::One, Writers::One, Writers::Many]) {
        if place.load().is_none() {
            place.store(Some(Ring::new(writers)?));
        }
    }
    Ok(())
}

/// Returns the rings of the threads that are no Ms.
pub(crate) fn thread_rings() -> impl Iterator<Item = &'static Ring> {
    THREAD_RINGS.iter().filter_map(AtomicRef::load)
}

/// Returns how many events were not recorded since the process started.
pub(crate) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// The thread that recorded an event.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventThread {
    /// The M with this number.
    M(u32),
    /// The thread that watches the others.
    Sysmon,
    /// The thread that makes Ms.
    ThreadMaker,
    /// Any other thread, by its number in the system.
    Other(u32),
}

impl fmt::Display for EventThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventThread::M(id) => write!(f, "M{id}"),
            EventThread::Sysmon => f.write_str("sysmon"),
            EventThread::ThreadMaker => f.write_str("thread maker"),
            EventThread::Other(id) => write!(f, "thread {id}"),
        }
    }
}

const SYSMON: u32 = u32::MAX;
const THREAD_MAKER: u32 = u32::MAX - 1;
/// The bit of a thread's number in the system. Linux has numbers below `1 << 22`.
const OTHER: u32 = 1 << 31;

impl EventThread {
    /// Returns the number that the head of a record has for the thread.
    pub(crate) fn number(self) -> u32 {
        match self {
            EventThread::M(id) => id,
            EventThread::Sysmon => SYSMON,
            EventThread::ThreadMaker => THREAD_MAKER,
            EventThread::Other(id) => OTHER | id,
        }
    }

    fn from_number(number: u32) -> EventThread {
        match number {
            SYSMON => EventThread::Sysmon,
            THREAD_MAKER => EventThread::ThreadMaker,
            number if number & OTHER != 0 => EventThread::Other(number & !OTHER),
            id => EventThread::M(id),
        }
    }

    /// Returns the ring of a thread that is no M.
    fn ring(self) -> Option<&'static Ring> {
        let index = match self {
            EventThread::Sysmon => 0,
            EventThread::ThreadMaker => 1,
            EventThread::M(_) | EventThread::Other(_) => 2,
        };
        THREAD_RINGS[index].load()
    }
}

thread_local! {
    /// The number of the calling thread, which is no M; 0 if it is not known yet.
    static THIS_THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Records which thread this is. Called by sysmon and by the thread maker.
pub(crate) fn set_this_thread(thread: EventThread) {
    THIS_THREAD.set(thread.number());
}

/// Returns the calling thread, which is no M.
fn this_thread() -> EventThread {
    if THIS_THREAD.get() == 0 {
        set_this_thread(EventThread::Other(thread_status::id() as u32));
    }
    EventThread::from_number(THIS_THREAD.get())
}

/// Where the parts of a record's head are.
const P_SHIFT: u32 = 8;
const P_BITS: u64 = 0xffff;
const THREAD_SHIFT: u32 = 32;

/// Writes an event to `ring`, the ring of `thread`. `p` is the number of the thread's P.
#[inline(always)]
pub(crate) fn write(
    ring: Option<&'static Ring>,
    thread: EventThread,
    p: Option<u32>,
    event: EventKind,
) {
    let (kind, fields) = event.encode();
    let p = p.map_or(0, |p| u64::from(p) + 1);
    let head = u64::from(kind) | p << P_SHIFT | u64::from(thread.number()) << THREAD_SHIFT;
    write_words(ring, head, fields);
}

#[inline(never)]
fn write_words(ring: Option<&'static Ring>, head: u64, [a, b, c, d, e]: [u64; FIELDS]) {
    let is_written =
        ring.is_some_and(|ring| ring.records.write([ticks::now(), head, a, b, c, d, e]));
    if !is_written {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes an event of the calling thread, which is no M.
#[cold]
pub(crate) fn write_on_thread(event: EventKind) {
    let thread = this_thread();
    write(thread.ring(), thread, None, event);
}

/// A record in its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) ticks: u64,
    pub(crate) thread: EventThread,
    pub(crate) p: Option<u32>,
    pub(crate) kind: EventKind,
}

impl Record {
    /// Returns `None` if the words are not those of a record.
    pub(crate) fn from_words([ticks, head, a, b, c, d, e]: [u64; WORDS]) -> Option<Record> {
        Some(Record {
            ticks,
            thread: EventThread::from_number((head >> THREAD_SHIFT) as u32),
            p: ((head >> P_SHIFT & P_BITS) as u32).checked_sub(1),
            kind: EventKind::decode(head as u8, [a, b, c, d, e])?,
        })
    }
}
