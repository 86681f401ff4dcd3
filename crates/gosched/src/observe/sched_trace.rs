//! Implements `runtime::sched_trace`: the output of `GODEBUG=schedtrace` as a string. The text is
//! produced by `sched::inspect::schedtrace`. Writing it never stops goroutines.

use crate::sched;

/// Returns the summary line, and then a line for each P, M and goroutine.
pub(crate) fn sched_trace() -> String {
    let mut text = String::new();
    // A write to a `String` does not fail.
    let _ = sched::write_trace(&mut text);
    text
}
