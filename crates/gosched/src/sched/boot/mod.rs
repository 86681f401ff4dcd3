//! Starts the runtime, and creates the threads of all Ms.

pub(crate) mod choose;

#[cfg(ported)]
pub(crate) mod main_m;
#[cfg(ported)]
pub(crate) mod preemption;
#[cfg(ported)]
pub(crate) mod seed;
#[cfg(ported)]
pub(crate) mod start;
#[cfg(ported)]
pub(crate) mod thread_maker;

#[cfg(not(ported))]
#[path = "start_none.rs"]
pub(crate) mod start;
