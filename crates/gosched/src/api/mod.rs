//! The functions that a program calls: `run`, `#[gosched::main]`, `runtime`, and the panic hook.
//! This module never schedules goroutines, and never implements a wait.

pub mod alloc;
pub mod attributes;
#[cfg(target_os = "linux")]
mod before_main;
pub(crate) mod blocking;
pub mod debug;
#[cfg(feature = "hyper")]
pub mod hyper;
pub(crate) mod panic;
pub mod rules;
pub(crate) mod run;
pub mod runtime;
pub(crate) mod stack;
pub(crate) mod thread;
pub(crate) mod virtual_time;
