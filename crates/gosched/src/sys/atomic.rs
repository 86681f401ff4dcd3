//! The atomics of code that is modelled: std's, or loom's in a model.

#[cfg(loom)]
pub(crate) use super::atomic_model::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(all(ported, not(loom)))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
