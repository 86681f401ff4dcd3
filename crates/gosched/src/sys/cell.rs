//! The cells for code that is checked by loom models: std's, or the loom versions in a model build.

#[cfg(loom)]
pub(crate) use super::cell_model::Cell;
#[cfg(not(loom))]
pub(crate) use std::cell::Cell;
