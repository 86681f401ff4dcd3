//! Counts of goroutines and of waiting threads. This module never puts a thread to sleep and never
//! wakes one: `wait` does both.

use crate::gmp::list::GList;
use crate::sys::Lock;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long a thread that begins to wait, or the last M to fall asleep, sleeps before it checks for
/// a deadlock. Another thread may still make a goroutine ready in that time.
pub(crate) const DEADLOCK_CHECK_DELAY: Duration = Duration::from_millis(10);

/// Functions of the M:N scheduler that waiting threads call. That scheduler is the layer above this
/// module.
#[derive(Debug)]
pub(crate) struct Upcalls {
    /// Ends the process if neither a goroutine nor a thread can ever run again.
    pub(crate) check_for_deadlock: fn(),
    /// Lets virtual time advance if all goroutines are asleep. Called after a thread has begun to
    /// wait, perhaps for a timer that had no waiter before.
    pub(crate) recheck_virtual_time: fn(),
}

/// Number of threads that wait in `park`: ordinary threads and goroutines that are threads.
/// Incremented by the thread itself once it can be made ready, and decremented by the thread that
/// makes it ready. The decrement may come first.
pub(crate) static WAITING: AtomicIsize = AtomicIsize::new(0);

/// Returns the number of threads that wait in `park`.
pub(crate) fn waiting() -> usize {
    // PAIR thread-waits: a reader that counts a thread also sees what the thread waits for.
    usize::try_from(WAITING.load(Ordering::Acquire)).unwrap_or(0)
}

/// Value of `procs` on the threads backend. It limits nothing.
pub(crate) static PROCS: AtomicUsize = AtomicUsize::new(1);

pub(crate) fn procs() -> usize {
    PROCS.load(Ordering::Relaxed)
}

/// Sets [`PROCS`] and returns the previous value.
pub(crate) fn set_procs(procs: usize) -> usize {
    PROCS.swap(procs, Ordering::Relaxed)
}

/// Number of threads that wait with a deadline: they continue by themselves.
pub(crate) static THREADS_WITH_DEADLINE: AtomicUsize = AtomicUsize::new(0);

/// Returns whether a thread waits that will continue by itself.
pub(crate) fn has_thread_with_deadline() -> bool {
    THREADS_WITH_DEADLINE.load(Ordering::Relaxed) > 0
}

/// Number of goroutines that do not wait, plus one while timers are fired. Virtual time stands
/// still while it is not 0. The thread that makes a goroutine ready increments it before the
/// goroutine runs.
pub(crate) static ACTIVE: AtomicIsize = AtomicIsize::new(0);

pub(crate) static DEADLOCK_IS_FATAL: AtomicBool = AtomicBool::new(false);

/// See [`set_deadlock_is_fatal`](crate::sched::set_deadlock_is_fatal).
pub(crate) fn set_deadlock_is_fatal(ends: bool) {
    DEADLOCK_IS_FATAL.store(ends, Ordering::Relaxed);
}

pub(crate) static GOROUTINES: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of live goroutines.
pub(crate) fn num_goroutines() -> usize {
    GOROUTINES.load(Ordering::Relaxed)
}

/// Number of goroutines ever started.
pub(crate) static STARTED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn count_started() {
    GOROUTINES.fetch_add(1, Ordering::Relaxed);
    STARTED.fetch_add(1, Ordering::Relaxed);
}

/// Prepared goroutines that were made ready. The timer thread starts them.
pub(crate) static PREPARED: Lock<GList> = Lock::new(GList::new());
