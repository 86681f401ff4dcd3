//! Requests to the thread maker, and the number of the runtime's helper threads.
//! `boot::thread_maker` serves the requests. This module never creates the thread of an M:
//! `boot::thread_maker` does.

use crate::sys::cpu_limit;
use crate::sys::forked;
use crate::sys::sleep_word::SleepWord;
use gosched_fiber::hook::Hook;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// The word that the thread maker sleeps on. Nonzero if there is a request.
pub(crate) static REQUESTED: SleepWord = SleepWord::new();

/// Number of the runtime's threads that are not Ms.
pub(crate) static HELPER_THREADS: AtomicU32 = AtomicU32::new(0);

/// Requests a thread for an M. Does not wait.
pub(crate) fn request_thread() {
    if REQUESTED.get() == 0 {
        REQUESTED.set(1);
        REQUESTED.wake();
    }
}

/// The function that the thread maker is requested to call.
pub(crate) static PENDING_CALL: Hook<fn()> = Hook::new();

/// Requests that the thread maker call `f`, which may allocate and create threads. May be called in
/// a signal handler. Returns false if this process is a forked child, which has no thread maker.
pub(crate) fn call_on_thread_maker(f: &'static fn()) -> bool {
    if forked::is_child() {
        return false;
    }
    PENDING_CALL.set(f);
    // PAIR pending-call: either the thread maker sees the function, or this thread sees that
    // `REQUESTED` is clear and sets it.
    fence(Ordering::SeqCst);
    request_thread();
    true
}

/// Starts a thread of the runtime that is not an M. The thread is counted in [`HELPER_THREADS`]
/// only once it exists: if a refused thread were counted, the deadlock detection would overlook a
/// thread of the program.
pub(crate) fn start_helper(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    STARTING_HELPERS.fetch_add(1, Ordering::Relaxed);
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    HELPER_THREADS.fetch_add(u32::from(started.is_ok()), Ordering::Relaxed);
    STARTING_HELPERS.fetch_sub(1, Ordering::Relaxed);
    started.map(drop)
}

/// Number of helper threads that are being started: they may exist, but are not counted in
/// [`HELPER_THREADS`] yet.
static STARTING_HELPERS: AtomicU32 = AtomicU32::new(0);

/// Returns whether a helper thread may exist that is not counted yet. The deadlock detection then
/// retries a little later.
pub(crate) fn is_starting_helper() -> bool {
    STARTING_HELPERS.load(Ordering::Relaxed) > 0
}

/// Whether the thread maker must read the CPU limit again.
pub(crate) static CPU_LIMIT_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Requests that the thread maker read the CPU limit again, which reads files. Does not wait.
pub(crate) fn request_cpu_limit() {
    if !cpu_limit::is_procs_fixed() {
        CPU_LIMIT_REQUESTED.store(true, Ordering::Relaxed);
        request_thread();
    }
}

/// Whether the system refused a thread a short time ago.
pub(crate) static REFUSED: AtomicBool = AtomicBool::new(false);

/// Returns whether the system refused a thread a short time ago: no caller should wait for a new
/// one.
pub(crate) fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}
