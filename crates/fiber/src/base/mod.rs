//! What needs neither a port nor a carrier: the end of the process, sleeping on a word, memory barriers.

#[cfg(ported)]
pub mod barrier;
#[cfg(not(ported))]
#[path = "barrier_none.rs"]
pub mod barrier;
pub mod exit_guard;
pub mod fatal;
pub mod futex;
#[cfg(ported)]
pub mod memory;
pub mod stderr;
pub(crate) mod unsupported;
pub mod watchdog;
