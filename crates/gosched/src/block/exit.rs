//! The end of a goroutine by its own wish.

use crate::gmp::current;
use crate::sched;
use std::panic::resume_unwind;

/// The payload that unwinds a goroutine to its end.
pub(crate) struct GoExit;

/// Ends the calling goroutine: its destructors run, nobody else's business is touched.
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
        eprintln!(
            "runtime: `goexit` in goroutine {}: it unwinds, and this program was built with \
             `panic = \"abort\"`: return from the goroutine's closure instead",
            g.id()
        );
        std::process::abort();
    }
    if g.id() == 1 {
        sched::main_has_exited();
    }
    g.set_exiting(true);
    resume_unwind(Box::new(GoExit))
}

/// Goes on with an exit that somebody caught. At each wait.
#[inline]
pub(crate) fn check() {
    if let Some(g) = current::goroutine()
        && g.is_exiting()
    {
        go_on();
    }
}

#[cold]
fn go_on() {
    // A destructor that waits, on the way out, is let be.
    if !std::thread::panicking() {
        resume_unwind(Box::new(GoExit));
    }
}
