//! The parameters and the result of starting a goroutine. This module never starts a goroutine:
//! `switch::spawn` and `threads::thread_spawn` do.

use crate::gmp::frame::Size;
use crate::gmp::g::{Details, G};
use crate::gmp::task::Task;
use std::panic::Location;
use std::sync::Arc;

/// The parameters of a new goroutine. Small, because every `go` passes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpawnRequest<'a> {
    pub(crate) task: *mut Task,
    pub(crate) site: &'static Location<'static>,
    /// Options that differ from the default.
    pub(crate) options: Option<&'a SpawnOptions>,
}

/// Options that most goroutines do not set.
#[derive(Debug, Default)]
pub(crate) struct SpawnOptions {
    pub(crate) details: Option<Arc<Details>>,
    /// The stack size, if it is not the default.
    pub(crate) size: Option<Size>,
    /// The stack size in bytes, for the threads backend.
    pub(crate) bytes: Option<usize>,
    /// The id of the main goroutine.
    pub(crate) id: Option<u64>,
    /// Whether the goroutine is main and the thread that starts it is about to become the first M.
    pub(crate) for_main_m: bool,
}

/// A goroutine that was started.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) g: &'static G,
    pub(crate) id: u64,
    /// The goroutine's thread, on the threads backend. Joining the goroutine includes waiting for
    /// this thread: thread-locals are destroyed when it ends.
    pub(crate) thread: Option<Box<std::thread::JoinHandle<()>>>,
}
