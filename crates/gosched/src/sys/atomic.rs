//! The atomics for code that is checked by loom models: std's, or the loom versions in a model
//! build. Outside of model builds, this module never adds code: the types are std's own.

#[cfg(loom)]
pub(crate) use super::atomic_model::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(all(ported, not(loom)))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
