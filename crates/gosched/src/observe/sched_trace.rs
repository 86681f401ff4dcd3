//! `runtime::sched_trace`: what `GODEBUG=schedtrace` prints, as a value. The text is made in `sched::inspect::schedtrace`.

use crate::sched;

/// The plain line, then a line for each P, M and goroutine.
pub(crate) fn sched_trace() -> String {
    let mut text = String::new();
    // A `String` refuses nothing.
    let _ = sched::write_trace(&mut text);
    text
}
