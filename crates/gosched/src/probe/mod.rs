//! Records what happens: times and counts always, events while a recording is on. While none is, a
//! point that records an event is a test of one word.
//!
//! [`event`] has the events, [`recorder`] the rings that they are written to, [`recording`] reads
//! the rings. `times` contains what is always measured. Data that exists only for inspection is
//! written only if [`ENABLED`], so that its cost can be measured.
//!
//! A point itself never changes what happens. The seeded mode, which does, is tested by the same
//! word ([`Watcher::Seed`]).

pub(crate) mod event;
pub(crate) mod field;
pub(crate) mod histogram;
pub(crate) mod recorder;
pub(crate) mod recording;
pub(crate) mod times;
pub(crate) mod wait_reason;

#[cfg(gosched_no_probes)]
mod off;
#[cfg(not(gosched_no_probes))]
mod on;
#[cfg(gosched_no_probes)]
pub(crate) use off::ENABLED;
#[cfg(not(gosched_no_probes))]
pub(crate) use on::ENABLED;

use crate::sys::cache_padded::CachePadded;
use std::sync::atomic::{AtomicU32, Ordering};

/// Who wants to know when the scheduler passes a point.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watcher {
    /// A recording of events.
    Recording = 1,
    /// The seeded mode, which draws a choice at some points.
    Seed = 2,
}

/// A bit for each [`Watcher`].
static WATCHERS: CachePadded<AtomicU32> = CachePadded::new(AtomicU32::new(0));

/// Returns whether there is any watcher.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    ENABLED && WATCHERS.load(Ordering::Relaxed) != 0
}

/// Returns whether events are recorded.
#[inline(always)]
pub(crate) fn is_recording() -> bool {
    ENABLED && WATCHERS.load(Ordering::Relaxed) & Watcher::Recording as u32 != 0
}

/// Adds or removes a watcher.
pub(crate) fn set_watched_by(watcher: Watcher, watches: bool) {
    if watches {
        WATCHERS.fetch_or(watcher as u32, Ordering::Relaxed);
    } else {
        WATCHERS.fetch_and(!(watcher as u32), Ordering::Relaxed);
    }
}
