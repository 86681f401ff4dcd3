//! A goroutine's thread-locals and thread control block: probe, create, reset. One folder per libc.
//!
//! To the code inside it a goroutine is a thread: it has its own block of thread-locals and its own
//! thread control block, in the slot of its stack, and the switch loads the thread pointer. What is
//! sound for threads is then sound for goroutines. How: book 02.
//!
//! **Life of an identity**, and the thread pointer each step runs on:
//!
//! 1. [`create`] on the carrier's (it allocates): the block is laid out beside the stack.
//! 2. [`begin`] on its own, the first thing in the goroutine.
//! 3. [`retire`] on its own, the last thing: destructors run, what they left is freed.
//! 4. [`wipe`] on anybody's, once nothing runs there: thread-locals get their first values again.
//! 5. Back to 2 with the next owner of the slot, or [`destroy`] on a thread's own.
//!
//! The layout of libc's block is *found out* at start ([`support`]), on a real thread, and then
//! tried ([`Unsupported`] if anything is not as expected): no version of libc is assumed.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "glibc/mod.rs"]
mod imp;

pub(crate) use imp::destroy;
pub use imp::{begin, create, retire, wipe};

use crate::base::unsupported::Unsupported;
use crate::stack::{Extent, Stack, StackError};

// The contract: every libc provides these.
const _: fn() -> Result<Extent, &'static Unsupported> = imp::extent;
const _: unsafe fn(&Stack) -> Result<(), StackError> = imp::create;
const _: unsafe fn() = imp::begin;
const _: unsafe fn() = imp::retire;
const _: unsafe fn(&Stack) = imp::wipe;
const _: fn(&Stack) = imp::destroy;

/// The thread pointer of the identity in a stack: what [`SavedContext`](crate::arch::SavedContext) gets once
/// [`create`] has built it.
pub fn thread_pointer(stack: &Stack) -> usize {
    stack.thread_pointer()
}

/// How much of a stack's slot an identity takes.
pub(crate) fn extent() -> Result<Extent, &'static Unsupported> {
    imp::extent()
}

/// Whether goroutines can have an identity here. The first call finds out and may take a
/// millisecond; it must come from an ordinary thread.
///
/// # Errors
/// What was expected of the system, and what it is instead.
pub fn support() -> Result<(), &'static Unsupported> {
    imp::extent().map(|_| ())
}
