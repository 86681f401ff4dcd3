//! The atomics of `protocol`: std's. The models replace this module by one with loom's atomics, so
//! `protocol` names its atomics through this path only. This module never adds code: the types are
//! std's own.

pub(crate) use gosched_fiber::const_fn;
pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
