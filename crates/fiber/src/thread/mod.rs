//! The OS thread below goroutines: the carrier and the code's role, the preemption signal, the
//! thread's free memory blocks, and the runtime's lock. This folder never chooses what runs on the
//! thread: the runtime does.

#[cfg(ported)]
pub mod carrier;
#[cfg(ported)]
pub(crate) mod current;
#[cfg(not(ported))]
#[path = "current_none.rs"]
pub(crate) mod current;
#[cfg(ported)]
pub mod interrupt;
pub mod lock;
pub mod magazine;
#[cfg(ported)]
pub(crate) mod no_preempt;
#[cfg(not(ported))]
#[path = "no_preempt_none.rs"]
pub(crate) mod no_preempt;
#[cfg(ported)]
pub(crate) mod signals;
