//! A check of an invariant in builds with debug assertions, for code that runs with preemption off.
//! It never panics, because such code must not panic.

/// Ends the process unless the condition holds: `debug_check!(condition, "…", …)`.
macro_rules! debug_check {
    ($condition:expr, $($message:tt)*) => {
        if cfg!(debug_assertions) && !$condition {
            $crate::sys::fatal::fatal!($($message)*);
        }
    };
}
pub(crate) use debug_check;
