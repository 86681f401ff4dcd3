//! Delivers the poller's events: returns the Gs of the goroutines and threads that I/O has made
//! ready. The caller makes them runnable and queues them. This module never decides which thread
//! polls: its callers do.

use crate::gmp::list::GList;
use crate::gmp::poll_desc;
use crate::gmp::record::record;
use crate::probe::event::EventKind;
use crate::sys::poller::{self, EventBuffer, MAX_EVENTS};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much real time I/O gets before virtual time advances.
pub(crate) const VIRTUAL_TIME_IO_GRACE: Duration = Duration::from_millis(20);

/// Appends the Gs that the poller reports to `ready`. Waits for at most `timeout` if there is none
/// yet.
/// Go: netpoll.
pub(crate) fn poll_ready(ready: &mut GList, timeout: Option<Duration>) {
    poll_ready_up_to(MAX_EVENTS, ready, timeout);
}

/// As [`poll_ready`], for at most `most` events.
/// Go: netpoll.
pub(crate) fn poll_ready_up_to(most: usize, ready: &mut GList, timeout: Option<Duration>) {
    let Some(poller) = poller::existing() else { return };
    let mut buffer = EventBuffer::new(most);
    poller.poll(&mut buffer, timeout);
    buffer.events().iter().for_each(|&event| poll_desc::deliver_event(event, ready));
    if !ready.is_empty() {
        record(|| EventKind::Poll { ready: ready.len() as u32 });
        WOKEN.fetch_add(ready.len() as u64, Ordering::Relaxed);
    }
}

/// Number of Gs that I/O has made ready. Updated at most once per poll; the poll takes a kernel
/// lock that all polling threads share, so this shared counter adds no contention.
pub(crate) static WOKEN: AtomicU64 = AtomicU64::new(0);

/// Returns the number of Gs that I/O has made ready.
pub(crate) fn woken() -> u64 {
    WOKEN.load(Ordering::Relaxed)
}
