//! Messages of the runtime on standard error: warnings, and fatal errors, which end the process if
//! an invariant of the runtime is broken. A message is never written through std's standard error,
//! whose lock a stopped goroutine may hold.

#[cfg(ported)]
pub(crate) use gosched_fiber::fatal::{Dump, Stderr, set_dump};

/// Ends the process with a message, `fatal!("…", …)`: see [`gosched_fiber::fatal::throw`].
macro_rules! fatal {
    ($($message:tt)*) => {
        gosched_fiber::fatal::throw(format_args!($($message)*))
    };
}
pub(crate) use fatal;

/// Prints a warning, `warning!("…", …)`: see [`gosched_fiber::fatal::warn`].
macro_rules! warning {
    ($($message:tt)*) => {
        gosched_fiber::fatal::warn(format_args!($($message)*))
    };
}
pub(crate) use warning;
