//! The cells for code that is checked by loom models: std's, or the loom versions in a model build.
//! Outside of model builds, this module never adds code: the type is std's own.

#[cfg(loom)]
pub(crate) use super::cell_model::Cell;
#[cfg(not(loom))]
pub(crate) use std::cell::Cell;
