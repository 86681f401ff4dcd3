//! The end of a goroutine: by its own wish, by a panic, or because it is done.

use crate::gmp::current;
use crate::sched;
use crate::sys::fatal::warning;
use gosched_fiber::fatal::Stderr;
use std::any::Any;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a panic does beyond the goroutine it happened in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// The goroutine ends, and its [`JoinHandle`](crate::JoinHandle) gets the payload: Rust's way.
    #[default]
    Isolate,
    /// The process ends with status 2, once the goroutine's destructors have run: Go's way.
    Abort,
}

static ABORT: AtomicBool = AtomicBool::new(false);

/// Chooses for all goroutines. Returns what it was.
pub fn set_panic_policy(policy: PanicPolicy) -> PanicPolicy {
    if ABORT.swap(policy == PanicPolicy::Abort, Ordering::Relaxed) {
        PanicPolicy::Abort
    } else {
        PanicPolicy::Isolate
    }
}

/// Runs all that a goroutine is to do, as the goroutine.
///
/// # Errors
/// It panicked; or ended by [`goexit`]: then the payload is a [`GoExit`].
pub(crate) fn catch_panic_or_goexit<T>(f: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let outcome = catch_unwind(AssertUnwindSafe(f));
    // On its way out it may wait again: thread-locals' destructors are its own code.
    if let Some(g) = current::goroutine() {
        g.set_exiting(false);
    }
    outcome.inspect_err(|payload| {
        if !payload.is::<GoExit>() && ABORT.load(Ordering::Relaxed) {
            fatal_panic();
        }
    })
}

/// As [`catch_panic_or_goexit`], where nobody wants to know how it ended.
pub(crate) fn run_discarding_panic(f: impl FnOnce()) {
    if let Err(payload) = catch_panic_or_goexit(f) {
        // What a payload does when it is dropped is nobody's business any more.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
    }
}

/// Go: fatalpanic.
#[cold]
fn fatal_panic() -> ! {
    sched::begin_report();
    let id = current::goroutine().map_or(0, crate::gmp::g::G::id);
    // Without std's lock, which somebody may hold for ever: others wait for this.
    let mut out = Stderr::new();
    let _ = writeln!(
        out,
        "fatal error: goroutine {id} panicked, and the panic policy is to end the process"
    );
    out.flush();
    sched::report(sched::ExitReason::Panic);
    // SAFETY: ends the process at once, as Go's runtime does.
    unsafe { libc::_exit(2) }
}

/// The payload that unwinds a goroutine to its end.
pub(crate) struct GoExit;

/// Ends the calling goroutine: its destructors run, nobody else's business is touched.
/// Go: Goexit.
///
/// It unwinds, with a payload of its own and without the panic hook's message. Code that catches
/// panics may catch it too; the goroutine then goes on to its end at its next wait. In main the other
/// goroutines go on; when none can, the process ends as Go's does.
///
/// # Panics
/// The caller is no goroutine. Where panics abort (`panic = "abort"`) the process ends, with a
/// sentence.
#[doc(alias = "Goexit")]
#[track_caller]
pub fn goexit() -> ! {
    let Some(g) = current::goroutine() else {
        panic!("`goexit` called outside a goroutine: return from the thread's function instead")
    };
    if cfg!(panic = "abort") {
        warning!(
            "`goexit` in goroutine {}: it unwinds, and this program was built with \
             `panic = \"abort\"`: return from the goroutine's closure instead",
            g.id()
        );
        std::process::abort();
    }
    if g.id() == 1 {
        sched::record_main_exit();
    }
    g.set_exiting(true);
    resume_unwind(Box::new(GoExit))
}

/// Goes on with an exit that somebody caught. At each wait.
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
    // A destructor that waits, on the way out, is let be.
    if !std::thread::panicking() {
        resume_unwind(Box::new(GoExit));
    }
}

/// The text of a payload, where it is one.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
