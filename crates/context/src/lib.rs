//! What a goroutine is made of: a stack, a thread identity of its own, and the switch between them.
//!
//! Knows nothing of scheduling. Read in the order of the modules below: where code runs
//! ([`stack`]), as whom ([`identity`], [`carrier`]), how it gets there ([`arch`]), what happens when
//! it goes too far ([`fault`]). The [`book`] says why.

pub mod arch;

pub mod identity;

pub mod stack;

pub mod carrier;

pub mod fault;

pub mod unwind;

pub mod routine;

mod lock;

pub mod book;

pub use carrier::host;
pub use identity::{Unsupported, support};
pub use routine::{Routine, Status, suspend};
pub use stack::{Size, Stack, StackError};
