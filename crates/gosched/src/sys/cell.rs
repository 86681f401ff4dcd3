//! The cells of code that is modelled: std's, or loom's in a model.

#[cfg(loom)]
pub(crate) use super::cell_model::Cell;
#[cfg(not(loom))]
pub(crate) use std::cell::Cell;
