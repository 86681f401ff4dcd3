//! The interface to the operating system: futexes, barriers, clocks, descriptors, signals, CPUs.
//! Code in this folder never refers to the types of goroutines, Ms and Ps: they are in `gmp`, above
//! it.

pub(crate) mod atomic;

pub(crate) mod cache_padded;
pub(crate) mod cell;
pub(crate) mod clock;
#[cfg(target_arch = "x86_64")]
pub(crate) mod counter;
pub(crate) mod cpu_limit;
#[cfg(ported)]
pub(crate) mod debug_check;
pub(crate) mod descriptor;
pub(crate) mod fatal;
pub(crate) mod forked;
pub(crate) mod main_stack;
pub(crate) mod mappings;
pub(crate) mod owner_cell;
pub(crate) mod poller;
pub(crate) mod random;
pub(crate) mod signals;
pub(crate) mod sleep_word;
pub(crate) mod tcp_inq;
#[cfg(ported)]
pub(crate) mod thread_count;
#[cfg(ported)]
pub(crate) mod thread_status;
pub(crate) mod ticks;
pub(crate) mod topology;
pub(crate) mod transfer;
pub(crate) mod zeroed;

#[cfg(not(target_arch = "x86_64"))]
#[path = "counter_none.rs"]
pub(crate) mod counter;

#[cfg(not(ported))]
#[path = "thread_status_none.rs"]
pub(crate) mod thread_status;

pub(crate) use gosched_fiber::lock::Lock;

pub(crate) use gosched_fiber::barrier;
