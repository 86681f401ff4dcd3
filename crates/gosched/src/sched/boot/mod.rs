//! Starts the runtime, and creates the threads of the Ms; the main M uses the process's first
//! thread. Code in this folder never stops the runtime, which runs until the process ends.

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
