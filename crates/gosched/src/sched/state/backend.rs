//! The backend of this process: chosen once, when the runtime starts. This module never chooses the
//! backend: `boot::choose` does.

use std::sync::OnceLock;

#[cfg(ported)]
pub(crate) use super::multi_thread::MultiThread;

/// Without a port there is only one backend, which serves every call.
#[cfg(not(ported))]
pub(crate) use self::Threads as MultiThread;

/// [`Backend::Threads`] as a type, for the traits that both backends implement.
#[derive(Debug)]
pub(crate) struct Threads;

/// How goroutines are implemented in this process; see
/// [`runtime::backend`](crate::runtime::backend).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Goroutines have their own stacks and move between a few threads.
    MultiThread,
    /// Each goroutine is an OS thread. The API is the same, but memory use, the cost of a switch
    /// and the maximum number of goroutines are those of threads. [`procs`](crate::runtime::procs)
    /// does not limit how many goroutines run, the kernel preempts instead of the runtime, dumps
    /// have no frames, and deadlocks are not reported.
    Threads,
}

pub(crate) static BACKEND: OnceLock<Backend> = OnceLock::new();

/// Returns the backend of this process, or `None` if the runtime has not started.
pub(crate) fn chosen() -> Option<Backend> {
    BACKEND.get().copied()
}
