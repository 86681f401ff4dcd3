//! The loom versions of the product's `sys`, with the same names.

pub(crate) mod atomic;
pub(crate) mod barrier;
#[path = "../../../../crates/gosched/src/sys/cache_padded.rs"]
pub(crate) mod cache_padded;
pub(crate) mod cell;
pub(crate) mod clock;
pub(crate) mod fatal;
pub(crate) mod futex;
pub(crate) mod sleep_word;
pub(crate) mod weakness;
