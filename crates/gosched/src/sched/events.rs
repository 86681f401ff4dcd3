//! What the poller delivers: each event makes goroutines and threads ready, which the caller lets run.

use crate::gmp::list::GList;
use crate::gmp::poll_desc;
use crate::sys::poller::{self, EventBuffer, MAX_EVENTS};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long I/O may take where time is virtual, before it is later.
pub(crate) const VIRTUAL_TIME_IO_GRACE: Duration = Duration::from_millis(20);

/// What has happened since the last time, or happens within `timeout`.
/// Go: netpoll.
pub(crate) fn poll_ready(ready: &mut GList, timeout: Option<Duration>) {
    poll_ready_up_to(MAX_EVENTS, ready, timeout);
}

/// The first `most` of these.
/// Go: netpoll.
pub(crate) fn poll_ready_up_to(most: usize, ready: &mut GList, timeout: Option<Duration>) {
    let Some(poller) = poller::existing() else { return };
    let mut buffer = EventBuffer::new(most);
    poller.poll(&mut buffer, timeout);
    buffer.events().iter().for_each(|&event| poll_desc::deliver_event(event, ready));
    if !ready.is_empty() {
        WOKEN.fetch_add(ready.len() as u64, Ordering::Relaxed);
    }
}

/// How many were made ready by I/O. Counted once for each call of the system that told of somebody, which
/// takes a lock of the kernel's that all who poll share.
pub(crate) static WOKEN: AtomicU64 = AtomicU64::new(0);

/// See above.
pub(crate) fn woken() -> u64 {
    WOKEN.load(Ordering::Relaxed)
}
