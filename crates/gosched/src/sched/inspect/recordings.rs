//! Turns the recording of events on and off. Any number of recordings can be on at the same time.
//!
//! The first recording begins while the world is stopped: an M that is in the middle of a decision,
//! past the test whether events are recorded, would leave a gap in the events after it. Once the
//! last recording has ended, an M may still record. So a recording takes the time at which it
//! begins while the world is stopped, and the time at which it ends before any M can miss an event,
//! and ignores what lies outside.
//!
//! While a recording is on, every M has a ring. The thread that makes an M first adds the M to the
//! list of all Ms, and then checks whether rings are wanted. A thread that starts a recording first
//! announces that rings are wanted, and then goes through the list. So at least one of the two sees
//! both the M and the announcement, and gives the M a ring.
//!
//! This module never reads an event: `probe::recording` does.

use crate::gmp::m::M;
use crate::probe::field::StopReason;
use crate::probe::recorder::{self, Ring};
use crate::probe::{self, Watcher};
use crate::protocol::attention::AttentionFlag;
use crate::protocol::event_ring::Writers;
use crate::sched::state::backend::{self, Backend};
use crate::sched::state::global::SCHED;
use crate::sched::world;
use crate::sys::{Lock, forked, ticks};
use gosched_fiber::lock::NoPreemptLockGuard;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// How many recordings there are.
#[derive(Debug)]
struct Recordings {
    /// Recordings that are on.
    on: u32,
    /// Recordings that can be read: those that are on, and those that have ended and were not
    /// closed.
    open: u32,
}

static RECORDINGS: Lock<Recordings> = Lock::new(Recordings { on: 0, open: 0 });

/// Whether every M must have a ring.
static RINGS_WANTED: AtomicBool = AtomicBool::new(false);

/// Begins a recording: returns the tick from which on all events are recorded. [`end`] and
/// [`close`] must follow, once each. One caller at a time; the caller must not hold a lock of the
/// runtime, because the world may stop.
///
/// # Errors
/// Goroutines are threads, the process is a forked child, or there is no memory for the rings.
pub(crate) fn begin() -> io::Result<u64> {
    if backend::chosen() != Some(Backend::MultiThread) {
        let why = "goroutines are threads in this process";
        return Err(unsupported(why));
    }
    if forked::is_child() {
        return Err(unsupported("this process was forked from one with goroutines"));
    }
    let mut recordings = RECORDINGS.lock_preemptible();
    let is_first = recordings.on == 0;
    if is_first {
        prepare().inspect_err(|_| RINGS_WANTED.store(false, Ordering::Relaxed))?;
    }
    recordings.on += 1;
    recordings.open += 1;
    drop(recordings);
    if !is_first {
        return Ok(ticks::now());
    }
    let begin = world::with_world_stopped(StopReason::Recording, |_| {
        probe::set_watched_by(Watcher::Recording, true);
        set_flag(true);
        // What an earlier recording has left.
        SCHED.all_ms().for_each(M::forget_source);
        ticks::now()
    });
    Ok(begin)
}

fn unsupported(why: &str) -> io::Error {
    let why = format!("{why}, so there are no scheduler events to record");
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Makes the rings.
fn prepare() -> io::Result<()> {
    recorder::make_thread_rings()?;
    RINGS_WANTED.store(true, Ordering::Relaxed);
    // PAIR event-rings: between the store above and the load of the list of all Ms.
    fence(Ordering::SeqCst);
    SCHED.all_ms().try_for_each(give_ring)
}

/// Ends a recording. Returns the tick up to which all events are recorded; they can be read until
/// [`close`].
pub(crate) fn end() -> u64 {
    let end = ticks::now();
    let mut recordings = RECORDINGS.lock_preemptible();
    recordings.on -= 1;
    if recordings.on == 0 {
        // Ms record nothing from here on, and then switch directly again.
        probe::set_watched_by(Watcher::Recording, false);
        set_flag(false);
        RINGS_WANTED.store(false, Ordering::Relaxed);
    }
    end
}

/// Says that a recording is read no longer. If there is no other, gives the memory of all rings
/// back to the system.
pub(crate) fn close() {
    let mut recordings = RECORDINGS.lock_preemptible();
    recordings.open -= 1;
    if recordings.open == 0 {
        rings().for_each(Ring::release);
    }
}

/// Returns all rings.
pub(crate) fn rings() -> impl Iterator<Item = &'static Ring> {
    recorder::thread_rings().chain(SCHED.all_ms().filter_map(|m| m.ring.load()))
}

/// Makes the Ms take their next G in the way that records it, or no longer.
fn set_flag(on: bool) {
    let _lock = NoPreemptLockGuard::new(&SCHED.lock);
    SCHED.attention.set(AttentionFlag::Recording, on);
}

/// Gives `m` a ring if it has none. Allocates.
fn give_ring(m: &'static M) -> io::Result<()> {
    if m.ring.load().is_none() {
        // If another thread is faster, this ring is not used.
        m.ring.replace_if(None, Some(Ring::new(Writers::One)?));
    }
    Ok(())
}

/// Gives a ring to `m`, which was just added to the list of all Ms, if it needs one. Without memory
/// for a ring, the M works, but its events are lost.
pub(crate) fn give_ring_to_new_m(m: &'static M) {
    // PAIR event-rings: between the store of `m` in the list of all Ms and the load below.
    fence(Ordering::SeqCst);
    if RINGS_WANTED.load(Ordering::Relaxed) {
        let _ = give_ring(m);
    }
}
