//! The end of a goroutine: its function returns, it panics, or it calls [`goexit`]. `goexit` never
//! ends a goroutine other than its caller.

use crate::gmp::current;
use crate::sched;
use crate::sys::fatal::warning;
use gosched_fiber::exit_guard;
use gosched_fiber::fatal::Stderr;
use std::any::Any;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a panic in a goroutine does to the rest of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// Only the goroutine ends, and its [`JoinHandle`](crate::JoinHandle) returns the panic
    /// payload, as for a thread of std. This is the default.
    #[default]
    Isolate,
    /// The process exits with status 2 after the goroutine's destructors have run, as in Go.
    Abort,
}

static ABORT: AtomicBool = AtomicBool::new(false);

/// Sets the panic policy of all goroutines and returns the previous policy.
pub fn set_panic_policy(policy: PanicPolicy) -> PanicPolicy {
    if ABORT.swap(policy == PanicPolicy::Abort, Ordering::Relaxed) {
        PanicPolicy::Abort
    } else {
        PanicPolicy::Isolate
    }
}

/// Runs `f`, the whole work of the calling goroutine.
///
/// # Errors
/// `f` panicked, or it called [`goexit`]: then the payload is a [`GoExit`].
pub(crate) fn catch_panic_or_goexit<T>(f: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let outcome = catch_unwind(AssertUnwindSafe(f));
    // The goroutine may wait again: the destructors of its thread-locals are user code.
    if let Some(g) = current::goroutine() {
        g.set_exiting(false);
    }
    outcome.inspect_err(|payload| {
        if !payload.is::<GoExit>() && ABORT.load(Ordering::Relaxed) {
            fatal_panic();
        }
    })
}

/// Like [`catch_panic_or_goexit`], for callers that do not need the outcome.
pub(crate) fn run_discarding_panic(f: impl FnOnce()) {
    if let Err(payload) = catch_panic_or_goexit(f) {
        // A panic in the payload's destructor is ignored.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
    }
}

/// Prints why the process ends, and ends it with status 2.
/// Go: fatalpanic.
#[cold]
fn fatal_panic() -> ! {
    sched::begin_report();
    let id = current::goroutine().map_or(0, crate::gmp::g::G::id);
    // Written without std's lock of stderr: a thread that holds it may be waiting for this report
    // to end.
    let mut out = Stderr::new();
    let _ = writeln!(out, "fatal error: goroutine {id} panicked, and the panic policy is `Abort`");
    out.flush();
    sched::report(sched::ExitReason::Panic);
    exit_guard::end_process()
}

/// The panic payload with which [`goexit`] unwinds a goroutine.
pub(crate) struct GoExit;

/// Ends the calling goroutine after running its destructors. No other goroutine is affected.
///
/// `goexit` unwinds the stack with a payload of its own and does not call the panic hook.
/// [`catch_unwind`] catches this payload too; the goroutine then unwinds
/// again at its next blocking call.
/// [`JoinError::is_goexit`](crate::JoinError::is_goexit) distinguishes this end from a panic.
///
/// If the main goroutine calls `goexit`, the other goroutines continue. When the last of them has
/// ended, the process ends with status 2 and Go's report of a deadlock. The same happens when all
/// of them are blocked, except with [`Backend::Threads`](crate::runtime::Backend::Threads).
///
/// Go: Goexit.
///
/// # Panics
/// The caller is not a goroutine: return from the thread's function instead. In a program that was
/// built with `panic = "abort"`, `goexit` prints a message and aborts the process.
#[doc(alias = "Goexit")]
#[track_caller]
pub fn goexit() -> ! {
    let Some(g) = current::goroutine() else {
        panic!("`goexit` called outside a goroutine: return from the thread's function instead")
    };
    if cfg!(panic = "abort") {
        warning!(
            "`goexit` called in goroutine {}, but this program was built with `panic = \"abort\"` \
             and cannot unwind: return from the goroutine's closure instead",
            g.id()
        );
        exit_guard::abort();
    }
    if g.id() == 1 {
        sched::record_main_exit();
    }
    g.set_exiting(true);
    resume_unwind(Box::new(GoExit))
}

/// Resumes an exit whose unwinding was caught. Called before each wait.
#[inline]
pub(crate) fn resume_if_exiting() {
    if let Some(g) = current::goroutine()
        && g.is_exiting()
    {
        resume_goexit();
    }
}

#[cold]
fn resume_goexit() {
    // A destructor that runs while the goroutine unwinds may wait.
    if !std::thread::panicking() {
        resume_unwind(Box::new(GoExit));
    }
}

/// Returns the message of a panic payload, or `None` if the payload is not a string.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
