//! What the runtime says on standard error: warnings, and the end of the process when a rule of ours was broken.

#[cfg(ported)]
pub(crate) use gosched_fiber::fatal::{Stderr, set_dump};

/// `fatal!("…", …)`: see [`gosched_fiber::fatal::throw`].
macro_rules! fatal {
    ($($message:tt)*) => {
        gosched_fiber::fatal::throw(format_args!($($message)*))
    };
}
pub(crate) use fatal;

/// `warning!("…", …)`: see [`gosched_fiber::fatal::warn`].
macro_rules! warning {
    ($($message:tt)*) => {
        gosched_fiber::fatal::warn(format_args!($($message)*))
    };
}
pub(crate) use warning;
