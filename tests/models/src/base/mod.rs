//! The loom versions of `base` of `gosched_fiber`, with the same names.

pub(crate) mod futex;

pub(crate) use crate::sys::{atomic, barrier};
