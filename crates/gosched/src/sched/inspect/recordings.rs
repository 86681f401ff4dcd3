//! Turns the recording of events on and off. Any number of recordings can be on at the same time.
//!
//! While a recording is on, every M has a ring. The thread that makes an M first adds the M to the
//! list of all Ms, and then checks whether rings are wanted. A thread that starts a recording first
//! announces that rings are wanted, and then goes through the list. So at least one of the two sees
//! both the M and the announcement, and gives the M a ring.
//!
//! This module never reads an event: `probe::recording` does.

use crate::gmp::m::M;
use crate::probe::recorder::{self, Ring};
use crate::probe::{self, Watcher};
use crate::protocol::attention::AttentionFlag;
use crate::protocol::event_ring::Writers;
use crate::sched::state::backend::{self, Backend};
use crate::sched::state::global::SCHED;
use crate::sys::Lock;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Number of recordings that are on.
static RECORDINGS: Lock<u32> = Lock::new(0);

/// Whether every M must have a ring.
static RINGS_WANTED: AtomicBool = AtomicBool::new(false);

/// Begins a recording. [`end`] must follow, once.
///
/// # Errors
/// Goroutines are threads, or there is no memory for the rings.
pub(crate) fn begin() -> io::Result<()> {
    if backend::chosen() != Some(Backend::MultiThread) {
        return Err(unsupported());
    }
    let mut recordings = RECORDINGS.lock_preemptible();
    if *recordings == 0 {
        prepare().inspect_err(|_| RINGS_WANTED.store(false, Ordering::Relaxed))?;
        probe::set_watched_by(Watcher::Recording, true);
        set_flag(true);
    }
    *recordings += 1;
    Ok(())
}

fn unsupported() -> io::Error {
    let why = "goroutines are threads in this process, so there are no scheduler events to record";
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

/// Ends a recording. The events that it has caused can still be read until
/// [`release_rings_if_off`].
pub(crate) fn end() {
    let mut recordings = RECORDINGS.lock_preemptible();
    *recordings -= 1;
    if *recordings == 0 {
        set_flag(false);
        probe::set_watched_by(Watcher::Recording, false);
        RINGS_WANTED.store(false, Ordering::Relaxed);
    }
}

/// Gives the memory of all rings back to the system, unless another recording is on.
pub(crate) fn release_rings_if_off() {
    let recordings = RECORDINGS.lock_preemptible();
    if *recordings == 0 {
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
