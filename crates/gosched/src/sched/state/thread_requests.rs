//! What is asked of the thread that makes threads, and how many threads it has made. `boot::thread_maker` does it.

use crate::sys::cpu_limit;
use crate::sys::forked;
use crate::sys::sleep_word::SleepWord;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

/// Not 0: somebody asked.
pub(crate) static REQUESTED: SleepWord = SleepWord::new();

/// The runtime's threads that are no Ms.
pub(crate) static HELPER_THREADS: AtomicU32 = AtomicU32::new(0);

/// Asks for an M. Does not wait.
pub(crate) fn request_thread() {
    if REQUESTED.get() == 0 {
        REQUESTED.set(1);
        REQUESTED.wake();
    }
}

/// A function that the thread maker is to call.
pub(crate) static PENDING_CALL: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Lets the thread maker call `f`, soon: `f` may allocate and create threads. In signal handlers too. False: the process
/// has no thread maker, and never will.
pub(crate) fn call_on_thread_maker(f: fn()) -> bool {
    if forked::is_child() {
        return false;
    }
    PENDING_CALL.store(f as *mut (), Ordering::Relaxed);
    // PAIR pending-call: the thread maker sees the function, or the caller sees that the thread maker was not asked.
    fence(Ordering::SeqCst);
    request_thread();
    true
}

/// Starts a thread of the runtime that is no M. The thread counts in [`HELPER_THREADS`] once it exists: to count a thread
/// that the system then refuses would make the search for deadlocks overlook a thread of the program.
pub(crate) fn start_helper(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    STARTING_HELPERS.fetch_add(1, Ordering::Relaxed);
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    HELPER_THREADS.fetch_add(u32::from(started.is_ok()), Ordering::Relaxed);
    STARTING_HELPERS.fetch_sub(1, Ordering::Relaxed);
    started.map(drop)
}

/// How many threads exist, perhaps, that do not count in [`HELPER_THREADS`] yet.
static STARTING_HELPERS: AtomicU32 = AtomicU32::new(0);

/// Whether a thread may exist that does not count yet: the search for deadlocks is to look again a little later.
pub(crate) fn is_starting_helper() -> bool {
    STARTING_HELPERS.load(Ordering::Relaxed) > 0
}

/// The CPU limit is to be read again.
pub(crate) static CPU_LIMIT_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Asks for another look at the CPU limit, which reads files. Does not wait.
pub(crate) fn request_cpu_limit() {
    if !cpu_limit::is_procs_fixed() {
        CPU_LIMIT_REQUESTED.store(true, Ordering::Relaxed);
        request_thread();
    }
}

/// The system refused a thread a short while ago.
pub(crate) static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether there is no point in waiting for a thread.
pub(crate) fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}
