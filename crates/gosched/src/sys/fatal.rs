//! What the runtime says on standard error: warnings, and the end of the process when a rule of ours was broken.

#[cfg(ported)]
pub(crate) use gosched_context::fatal::{Stderr, set_dump};

/// `fatal!("…", …)`: see [`gosched_context::fatal::throw`].
macro_rules! fatal {
    ($($message:tt)*) => {
        gosched_context::fatal::throw(format_args!($($message)*))
    };
}
pub(crate) use fatal;

/// `warning!("…", …)`: see [`gosched_context::fatal::warn`].
macro_rules! warning {
    ($($message:tt)*) => {
        gosched_context::fatal::warn(format_args!($($message)*))
    };
}
pub(crate) use warning;
