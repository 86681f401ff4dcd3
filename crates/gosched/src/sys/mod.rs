//! What we ask of the system: futexes, barriers, random numbers, CPUs, and the std-or-loom switch.

#[cfg(any(ported, loom))]
pub(crate) mod atomic;
pub(crate) mod owned;

#[cfg(not(loom))]
pub(crate) mod cpu_limit;
#[cfg(not(loom))]
pub(crate) mod fatal;
#[cfg(not(loom))]
pub(crate) mod main_stack;
#[cfg(not(loom))]
pub(crate) mod random;
#[cfg(not(loom))]
pub(crate) mod sleep_word;
#[cfg(not(loom))]
pub(crate) mod task_count;
#[cfg(not(loom))]
pub(crate) mod topology;

#[cfg(all(not(loom), target_os = "linux"))]
mod before_main;

#[cfg(loom)]
#[path = "sleep_word_model.rs"]
pub(crate) mod sleep_word;

#[cfg(not(loom))]
pub(crate) use gosched_context::lock::Lock;

#[cfg(all(ported, not(loom)))]
pub(crate) use gosched_context::barrier;
