//! Recordings of scheduler events: `debug::events`. This module never writes an event: `probe`
//! does.

use crate::block::sync::Mutex;
use crate::probe::event::EventKind;
use crate::probe::recorder::{self, EventThread, Record};
use crate::probe::recording::Cursor;
use crate::sched;
use crate::sys::ticks::Scale;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

/// One event. Displayed as one line.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened, since the recording began.
    pub time: Duration,
    /// The thread that recorded it.
    pub thread: EventThread,
    /// The P that the thread had, if it had one.
    pub p: Option<u32>,
    /// What happened.
    pub kind: EventKind,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.time.as_nanos() as f64 / 1e3;
        let p = self.p.map_or_else(String::new, |p| format!("P{p}"));
        let thread = self.thread.to_string();
        write!(f, "{micros:12.3} µs  {thread:<12} {p:<4} {}", self.kind)
    }
}

/// A recording of events, which [`start`] begins. It ends when it is stopped or dropped.
#[must_use = "a recording ends when it is dropped"]
#[derive(Debug)]
pub struct Recording {
    cursors: Vec<Cursor>,
    /// The ticks from and up to which events belong to the recording.
    begin: u64,
    end: Option<u64>,
    scale: Scale,
    lost: u64,
    /// How many events had been dropped when the recording began.
    dropped_before: u64,
}

/// Starts to record what the scheduler decides. Any number of recordings can be on at the same
/// time.
///
/// The first recording takes up to 10 ms to start: it measures the CPU's clock. If no other
/// recording is on, all goroutines stop for a moment, so that the recording begins for all of them
/// at once.
///
/// # Errors
/// Goroutines are threads in this process, or this process was forked from one with goroutines
/// ([`Unsupported`](io::ErrorKind::Unsupported)), or there is no memory for the events.
pub fn start() -> io::Result<Recording> {
    // Callers wait in the runtime's own mutex: a goroutine that blocked its thread here would delay
    // the stop of the world.
    static STARTS: Mutex<()> = Mutex::new(());
    let scale = Scale::measure();
    let one_at_a_time = STARTS.lock_no_unwind();
    let dropped_before = recorder::dropped();
    // Rings that are made from here on are read from their first record.
    let cursors = sched::event_rings().map(Cursor::at_end).collect();
    let begin = sched::begin_recording()?;
    drop(one_at_a_time);
    Ok(Recording { cursors, begin, end: None, scale, lost: 0, dropped_before })
}

impl Recording {
    /// Returns the events since the last call, in the order of their times.
    ///
    /// An event that is being recorded at this moment is in the next result, although it may be
    /// older than the last event of this result.
    pub fn read(&mut self) -> Vec<Event> {
        self.read_complete().1
    }

    /// Ends the recording. Returns the events since the last call of [`Recording::read`], in the
    /// order of their times. [`Recording::lost`] then says whether these are all.
    pub fn stop(&mut self) -> Vec<Event> {
        self.end();
        let mut all = Vec::new();
        loop {
            let (is_incomplete, mut events) = self.read_complete();
            all.append(&mut events);
            if !is_incomplete {
                break;
            }
            // A thread was interrupted while it recorded an event.
            std::thread::sleep(Duration::from_micros(100));
        }
        sort(&mut all);
        all
    }

    /// Returns how many events of this recording could not be read: they were overwritten, because
    /// they were not read in time, or there was no memory for them.
    pub fn lost(&self) -> u64 {
        self.lost + (recorder::dropped() - self.dropped_before)
    }

    /// Returns whether a thread is recording an event at this moment, and the events that are
    /// complete.
    fn read_complete(&mut self) -> (bool, Vec<Event>) {
        for ring in sched::event_rings() {
            if !self.cursors.iter().any(|cursor| cursor.is_of(ring)) {
                // The ring is new.
                self.cursors.push(Cursor::at_start(ring));
            }
        }
        let (mut is_incomplete, mut events) = (false, Vec::new());
        let (time, scale) = (self.begin..=self.end.unwrap_or(u64::MAX), self.scale);
        for cursor in &mut self.cursors {
            let (stopped, lost) = cursor.read(|record| {
                events.extend(time.contains(&record.ticks).then(|| event(record, &time, scale)));
            });
            is_incomplete |= stopped;
            self.lost += lost;
        }
        sort(&mut events);
        (is_incomplete, events)
    }

    fn end(&mut self) {
        self.end.get_or_insert_with(sched::end_recording);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.end();
        sched::close_recording();
    }
}

/// Returns the event of a record of a recording that began at the start of `time`.
fn event(record: Record, time: &RangeInclusive<u64>, scale: Scale) -> Event {
    let Record { ticks, thread, p, kind } = record;
    let time = Duration::from_nanos(scale.nanos(ticks - time.start()));
    Event { time, thread, p, kind }
}

/// Sorts events by time. Events of one thread keep their order.
fn sort(events: &mut [Event]) {
    events.sort_by_key(|event| event.time);
}
