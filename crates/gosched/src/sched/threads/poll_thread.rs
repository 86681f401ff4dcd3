//! The thread that polls on the threads backend. It does nothing else. The thread never runs on the
//! M:N backend, where Ms and sysmon poll.

use crate::gmp::list::GList;
use crate::sched::events::{self, VIRTUAL_TIME_IO_GRACE};
use crate::sched::threads::{activity, wait};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Starts the thread, if it does not run yet.
pub(crate) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("gosched-poller".into());
        if let Err(why) = thread.spawn(poll) {
            panic!("cannot start the thread that polls: {why}");
        }
    });
}

/// Number of goroutines and threads that the poll thread has made ready.
static WOKEN: AtomicU64 = AtomicU64::new(0);

/// Gives I/O some real time to arrive before virtual time advances. Returns whether the poll thread
/// made a thread ready, or a goroutine is active.
pub(crate) fn wait_for_io() -> bool {
    let before = WOKEN.load(Ordering::Relaxed);
    std::thread::sleep(VIRTUAL_TIME_IO_GRACE);
    WOKEN.load(Ordering::Relaxed) != before || activity::ACTIVE.load(Ordering::Relaxed) > 0
}

fn poll() {
    loop {
        let mut ready = GList::new();
        events::poll_ready(&mut ready, None);
        while let Some(g) = ready.pop_front() {
            wait::ready(g);
            WOKEN.fetch_add(1, Ordering::Relaxed);
        }
    }
}
