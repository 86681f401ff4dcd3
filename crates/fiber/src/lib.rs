//! The parts that a goroutine is made of: a stack, a thread identity of its own, and the context
//! switch.
//!
//! This crate contains no scheduler: it never decides which goroutine runs, or when one is
//! preempted. Read its modules in this order: `arch` (the switch to another stack), `identity` and
//! `thread::carrier` (the thread that the code on the stack appears to be), `stack` (the memory),
//! `fault` (stack overflow). The design is explained in `gosched::book`.
//!
//! The only port is to x86-64 Linux with glibc. On other systems the modules that need a port do
//! not exist, [`support`] returns an error, and [`host`] calls its closure; a runtime then runs
//! each goroutine as a thread.

pub mod base;

pub(crate) mod protocol;

#[cfg(ported)]
pub mod arch;

#[cfg(ported)]
pub mod identity;

pub mod thread;

#[cfg(ported)]
pub mod stack;

#[cfg(ported)]
pub mod fault;

#[cfg(ported)]
pub mod unwind;

#[cfg(ported)]
pub mod routine;

pub mod no_port;

#[cfg(ported)]
pub use base::memory;
pub use base::unsupported::Unsupported;
pub use base::{barrier, exit_guard, fatal, futex, hook, stderr, watchdog};
pub use thread::no_preempt::NoPreempt;
#[cfg(ported)]
pub use thread::{carrier, interrupt};
pub use thread::{lock, magazine};

#[cfg(ported)]
pub use carrier::host;
#[cfg(ported)]
pub use identity::support;
#[cfg(ported)]
pub use routine::{Routine, Status, suspend};
#[cfg(ported)]
pub use stack::{Size, Stack, StackError};

#[cfg(not(ported))]
pub use no_port::{host, support};
