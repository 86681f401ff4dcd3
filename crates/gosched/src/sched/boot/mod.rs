//! The runtime's first moment, and the thread that makes all others.

pub(crate) mod main_m;
pub(crate) mod preemption;
pub(crate) mod seed;
pub(crate) mod start;
pub(crate) mod thread_maker;
