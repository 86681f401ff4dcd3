//! A goroutine's thread identity: its own thread-locals and its own thread control block. One
//! folder per libc.
//!
//! To the code that runs in it, a goroutine is a thread: its block of thread-locals and its thread
//! control block lie in the slot of its stack, and the switch loads the thread pointer. So whatever
//! is sound on threads is sound in goroutines. See the book's chapter `identity`.
//!
//! **Life of an identity**, and the thread pointer that each step runs with:
//!
//! 1. [`create`] runs with the carrier's thread pointer, because it allocates. It lays the block
//!    out beside the stack.
//! 2. [`begin`] runs with the identity's own thread pointer, as the first code of the goroutine.
//! 3. [`retire`] runs with the identity's own thread pointer, as the last code of the goroutine. It
//!    runs the destructors and frees what they leave behind.
//! 4. [`wipe`] runs with any thread pointer, once no code runs with the identity. It resets the
//!    thread-locals to their initial values.
//! 5. The next owner of the slot continues at step 2, or [`destroy`] runs with a thread's own
//!    thread pointer.
//!
//! The layout of libc's control block is probed at start on a real thread ([`support`]) and then
//! tested. No version of libc is assumed: if the probe or the test finds anything unexpected, the
//! result is [`Unsupported`].
//!
//! This module never writes the thread pointer: `arch` does.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "glibc/mod.rs"]
mod imp;

pub(crate) use imp::destroy;
pub use imp::{begin, create, retire, wipe};

use crate::base::unsupported::Unsupported;
use crate::stack::{Extent, Stack, StackError};

// The contract: every libc's module provides these functions.
const _: fn() -> Result<Extent, &'static Unsupported> = imp::extent;
const _: unsafe fn(&Stack) -> Result<(), StackError> = imp::create;
const _: unsafe fn() = imp::begin;
const _: unsafe fn() = imp::retire;
const _: unsafe fn(&Stack) = imp::wipe;
const _: fn(&Stack) = imp::destroy;

/// Returns the thread pointer of the identity in a stack. After [`create`] has built the identity,
/// store it in the [`SavedContext`](crate::arch::SavedContext) of the code that runs with it.
pub fn thread_pointer(stack: &Stack) -> usize {
    stack.thread_pointer()
}

/// Returns how many bytes of a stack's slot an identity takes, or why identities are not supported.
pub(crate) fn extent() -> Result<Extent, &'static Unsupported> {
    imp::extent()
}

/// Checks whether goroutines can have an identity on this system.
///
/// The first call probes libc, which takes up to a millisecond, and must be made on an ordinary
/// thread. Later calls return its result.
///
/// # Errors
/// Goroutines cannot have an identity. The error states what was expected of the system and what
/// was found instead. If memory or a thread was missing, the next call probes again.
pub fn support() -> Result<(), &'static Unsupported> {
    imp::extent().map(|_| ())
}
