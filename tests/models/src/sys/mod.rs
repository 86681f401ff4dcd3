//! The loom versions of the product's `sys`, with the same names.

pub(crate) mod atomic;
pub(crate) mod barrier;
pub(crate) mod cell;
pub(crate) mod futex;
pub(crate) mod sleep_word;
pub(crate) mod weakness;
