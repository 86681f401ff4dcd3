//! What is asked of the thread that makes threads, and how many threads it has made. `boot::thread_maker` does it.

use crate::sys::cpu_limit;
use crate::sys::forked;
use crate::sys::sleep_word::SleepWord;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

/// Not 0: somebody asked.
pub(crate) static ASKED: SleepWord = SleepWord::new();

/// The runtime's threads that are no Ms.
pub(crate) static OTHER_THREADS: AtomicU32 = AtomicU32::new(0);

/// Asks for an M. Does not wait.
pub(crate) fn ask() {
    if ASKED.get() == 0 {
        ASKED.set(1);
        ASKED.wake();
    }
}

/// A function that the spawner is to call.
pub(crate) static CALL: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Lets the spawner call `f`, soon: `f` may allocate and create threads. In signal handlers too. False: the process
/// has no spawner, and never will.
pub(crate) fn call_from_spawner(f: fn()) -> bool {
    if forked::is_child() {
        return false;
    }
    CALL.store(f as *mut (), Ordering::Relaxed);
    // PAIR spawner-call: the spawner sees the function, or the caller sees that the spawner was not asked.
    fence(Ordering::SeqCst);
    ask();
    true
}

/// Starts a thread of the runtime that is no M. The thread counts in [`OTHER_THREADS`] once it exists: to count a thread
/// that the system then refuses would make the search for deadlocks overlook a thread of the program.
pub(crate) fn start_other(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    STARTING.fetch_add(1, Ordering::Relaxed);
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    OTHER_THREADS.fetch_add(u32::from(started.is_ok()), Ordering::Relaxed);
    STARTING.fetch_sub(1, Ordering::Relaxed);
    started.map(drop)
}

/// How many threads exist, perhaps, that do not count in [`OTHER_THREADS`] yet.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// Whether a thread may exist that does not count yet: the search for deadlocks is to look again a little later.
pub(crate) fn is_starting_a_thread() -> bool {
    STARTING.load(Ordering::Relaxed) > 0
}

/// The CPU limit is to be read again.
pub(crate) static LIMIT_ASKED: AtomicBool = AtomicBool::new(false);

/// Asks for another look at the CPU limit, which reads files. Does not wait.
pub(crate) fn ask_for_limit() {
    if !cpu_limit::is_fixed() {
        LIMIT_ASKED.store(true, Ordering::Relaxed);
        ask();
    }
}

/// The system refused a thread a short while ago.
pub(crate) static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether there is no point in waiting for a thread.
pub(crate) fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}
