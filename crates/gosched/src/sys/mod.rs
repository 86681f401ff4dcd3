//! The interface to the operating system: futexes, barriers, clocks, descriptors, signals, CPUs.
//! Also selects between std's types and their loom versions. Code in this folder never refers to
//! the types of goroutines, Ms and Ps: they are in `gmp`, above it.

pub(crate) mod atomic;

pub(crate) mod cell;

#[cfg(loom)]
mod atomic_model;
#[cfg(loom)]
#[path = "barrier_model.rs"]
pub(crate) mod barrier;
#[cfg(loom)]
mod cell_model;
#[cfg(loom)]
pub(crate) mod futex_model;
#[cfg(loom)]
#[path = "sleep_word_model.rs"]
pub(crate) mod sleep_word;
#[cfg(loom)]
pub(crate) mod weakness;

#[cfg(not(loom))]
pub(crate) mod cache_padded;
#[cfg(not(loom))]
pub(crate) mod clock;
#[cfg(not(loom))]
pub(crate) mod cpu_limit;
#[cfg(not(loom))]
pub(crate) mod descriptor;
#[cfg(not(loom))]
pub(crate) mod fatal;
#[cfg(not(loom))]
pub(crate) mod forked;
#[cfg(not(loom))]
#[cfg(not(loom))]
pub(crate) mod main_stack;
#[cfg(not(loom))]
pub(crate) mod mappings;
#[cfg(not(loom))]
pub(crate) mod owner_cell;
#[cfg(not(loom))]
pub(crate) mod poller;
#[cfg(not(loom))]
pub(crate) mod random;
#[cfg(not(loom))]
pub(crate) mod signals;
#[cfg(not(loom))]
pub(crate) mod sleep_word;
#[cfg(not(loom))]
pub(crate) mod tcp_inq;
#[cfg(all(ported, not(loom)))]
pub(crate) mod thread_count;
#[cfg(all(ported, not(loom)))]
pub(crate) mod thread_status;
#[cfg(not(loom))]
pub(crate) mod topology;
#[cfg(not(loom))]
pub(crate) mod transfer;

#[cfg(all(not(ported), not(loom)))]
#[path = "thread_status_none.rs"]
pub(crate) mod thread_status;

#[cfg(not(loom))]
pub(crate) use gosched_fiber::lock::Lock;

#[cfg(all(ported, not(loom)))]
pub(crate) use gosched_fiber::barrier;
