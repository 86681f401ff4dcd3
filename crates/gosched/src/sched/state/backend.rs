//! What goroutines are in this process: decided once, when the runtime starts.

use std::sync::OnceLock;

#[cfg(ported)]
pub(crate) use super::multi_thread::MultiThread;

/// Without a port there is one backend, and every call goes to it.
#[cfg(not(ported))]
pub(crate) use self::Threads as MultiThread;

/// [`Backend::Threads`], for the contracts that both backends fulfil.
#[derive(Debug)]
pub(crate) struct Threads;

/// What goroutines are in this process: see [`runtime::backend`](crate::runtime::backend).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Goroutines have stacks of their own and move between a few threads.
    MultiThread,
    /// Each goroutine is an OS thread. The API is the same; memory, switches and the number of
    /// goroutines are those of threads. [`procs`](crate::runtime::procs) limits nothing, the kernel
    /// preempts instead of the runtime, dumps have no frames, and a deadlock is not reported.
    Threads,
}

pub(crate) static BACKEND: OnceLock<Backend> = OnceLock::new();

/// What goroutines are; `None` before the runtime starts.
pub(crate) fn chosen() -> Option<Backend> {
    BACKEND.get().copied()
}
