//! The cell of code that models check: std's. The models replace this module by a cell whose
//! conflicting accesses loom reports. This module never adds code: the type is std's own.

pub(crate) use std::cell::Cell;
