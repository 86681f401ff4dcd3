//! The atomics of `protocol`: std's. The models replace this module by one with loom's atomics, so
//! `protocol` names its atomics through this path only. This module never adds code: the types are
//! std's own.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

/// Declares a function that is `const` in the product. In a model it is not, since loom creates no
/// atomics in constants. Exported for the protocols of `gosched`.
#[doc(hidden)]
#[macro_export]
macro_rules! const_fn {
    ($(#[$attribute:meta])* $visibility:vis fn $($rest:tt)*) => {
        $(#[$attribute])* $visibility const fn $($rest)*
    };
}

pub(crate) use const_fn;
