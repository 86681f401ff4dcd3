//! How many goroutines and threads there are, and how many of them wait.

use crate::gmp::list::GList;
use crate::sys::Lock;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long a thread that begins to wait, or the last M, sleeps before it looks for a deadlock: somebody may still come.
pub(crate) const DEADLOCK_CHECK_DELAY: Duration = Duration::from_millis(10);

/// What threads ask of the layer above them.
#[derive(Debug)]
pub(crate) struct Upcalls {
    /// Ends the process if neither a goroutine nor a thread can ever run again.
    pub(crate) check_for_deadlock: fn(),
    /// In virtual time: a thread has begun to wait, perhaps for a timer that nobody waited for. If all others sleep, time
    /// passes from here on.
    pub(crate) recheck_virtual_time: fn(),
}

/// Ordinary threads that wait for a goroutine. Counted up by the thread once others know of it, and
/// down by whoever lets it go on, who may come first.
pub(crate) static WAITING: AtomicIsize = AtomicIsize::new(0);

/// How many ordinary threads wait for a goroutine.
pub(crate) fn waiting() -> usize {
    // PAIR thread-waits: whoever counts a thread sees what it waits for.
    usize::try_from(WAITING.load(Ordering::Acquire)).unwrap_or(0)
}

/// What `procs` says where goroutines are threads: nothing else depends on it.
pub(crate) static PROCS: AtomicUsize = AtomicUsize::new(1);

pub(crate) fn procs() -> usize {
    PROCS.load(Ordering::Relaxed)
}

/// Returns what it was.
pub(crate) fn set_procs(procs: usize) -> usize {
    PROCS.swap(procs, Ordering::Relaxed)
}

/// Threads that wait with a limit: they go on by themselves.
pub(crate) static THREADS_WITH_DEADLINE: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread waits that will go on by itself.
pub(crate) fn has_thread_with_deadline() -> bool {
    THREADS_WITH_DEADLINE.load(Ordering::Relaxed) > 0
}

/// Goroutines that do not wait, and timers that are being fired: while there is one, virtual time stands
/// still. Counted up by whoever lets one go on, before it does.
pub(crate) static ACTIVE: AtomicIsize = AtomicIsize::new(0);

pub(crate) static DEADLOCK_IS_FATAL: AtomicBool = AtomicBool::new(false);

/// See [`set_deadlock_is_fatal`](crate::sched::set_deadlock_is_fatal).
pub(crate) fn set_deadlock_is_fatal(ends: bool) {
    DEADLOCK_IS_FATAL.store(ends, Ordering::Relaxed);
}

pub(crate) static GOROUTINES: AtomicUsize = AtomicUsize::new(0);

/// Goroutines that live.
pub(crate) fn num_goroutines() -> usize {
    GOROUTINES.load(Ordering::Relaxed)
}

/// Goroutines that were ever started.
pub(crate) static STARTED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn count_started() {
    GOROUTINES.fetch_add(1, Ordering::Relaxed);
    STARTED.fetch_add(1, Ordering::Relaxed);
}

/// Prepared goroutines that were made ready: the thread of the timers starts them.
pub(crate) static PREPARED: Lock<GList> = Lock::new(GList::new());
