//! What a goroutine is made of: a stack, a thread identity of its own, and the switch between them.
//!
//! Knows nothing of scheduling. Read in the order of the modules below: how code gets onto a stack
//! (`arch`), as whom it runs there (`identity`, `carrier`), where that is (`stack`), and what
//! happens when it goes too far (`fault`). The [`book`] says why.
//!
//! There is a port to x86-64 Linux with glibc. Elsewhere only [`support`] and [`host`] exist, and
//! the first says no: a runtime then makes each goroutine a thread.

pub mod base;

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

pub mod book;

#[cfg(ported)]
pub use base::memory;
pub use base::unsupported::Unsupported;
pub use base::{barrier, exit_guard, fatal, futex, watchdog};
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
