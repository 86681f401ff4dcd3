//! The lowest layer, which needs no carrier: environment variables, fatal errors and the end of the
//! process, hooks, sleeping on a word, atomics and memory barriers, the ELF data of loaded modules,
//! copies of memory that may be unmapped. This folder never refers to the rest of the crate.

pub(crate) mod atomic;
pub mod atomic_ref;
#[cfg(ported)]
pub mod barrier;
#[cfg(not(ported))]
#[path = "barrier_none.rs"]
pub mod barrier;
#[cfg(ported)]
pub(crate) mod elf;
pub mod environment;
pub mod exit_guard;
pub mod fatal;
pub mod futex;
pub mod hook;
#[cfg(ported)]
pub mod memory;
pub mod stderr;
pub(crate) mod unsupported;
pub mod watchdog;
