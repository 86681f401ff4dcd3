//! What a goroutine is made of: a stack, a thread identity of its own, and the switch between them.
//!
//! Knows nothing of scheduling. Read in the order of the modules below: how code gets onto a stack
//! (`arch`), as whom it runs there (`identity`, `carrier`), where that is (`stack`), and what
//! happens when it goes too far (`fault`). The [`book`] says why.
//!
//! There is a port to x86-64 Linux with glibc. Elsewhere only [`support`] and [`host`] exist, and
//! the first says no: a runtime then makes each goroutine a thread.

#[cfg(ported)]
pub mod arch;

#[cfg(ported)]
pub mod identity;

#[cfg(ported)]
pub mod carrier;

#[cfg(ported)]
pub mod stack;

#[cfg(ported)]
mod signals;

#[cfg(ported)]
pub mod fault;

#[cfg(ported)]
pub mod interrupt;

#[cfg(ported)]
pub mod memory;

#[cfg(ported)]
pub mod unwind;

#[cfg(ported)]
pub mod routine;

#[cfg(ported)]
pub mod barrier;

#[cfg(not(ported))]
#[path = "barrier_none.rs"]
pub mod barrier;

pub mod dying;

pub mod fatal;

pub mod futex;

pub mod lock;

pub mod magazine;

#[cfg(ported)]
mod carried;

#[cfg(not(ported))]
#[path = "carried_none.rs"]
mod carried;

pub mod none;

mod unsupported;

pub mod watchdog;

pub mod book;

pub use carried::NoPreempt;
pub use unsupported::Unsupported;

#[cfg(ported)]
pub use carrier::host;
#[cfg(ported)]
pub use identity::support;
#[cfg(ported)]
pub use routine::{Routine, Status, suspend};
#[cfg(ported)]
pub use stack::{Size, Stack, StackError};

#[cfg(not(ported))]
pub use none::{host, support};
