//! A goroutine to be started.

use crate::gmp::frame::Size;
use crate::gmp::g::{Details, G};
use crate::gmp::task::Task;
use std::panic::Location;
use std::sync::Arc;

/// A goroutine to be started. Small: it is on the way of every `go`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpawnRequest<'a> {
    pub(crate) task: *mut Task,
    pub(crate) site: &'static Location<'static>,
    /// What is special about it.
    pub(crate) options: Option<&'a SpawnOptions>,
}

/// What most goroutines do not ask for.
#[derive(Debug, Default)]
pub(crate) struct SpawnOptions {
    pub(crate) details: Option<Arc<Details>>,
    /// A stack of a size of its own.
    pub(crate) size: Option<Size>,
    /// The same in bytes, for a thread.
    pub(crate) bytes: Option<usize>,
    /// Main's.
    pub(crate) id: Option<u64>,
    /// It is main, and the thread that starts it is about to become the first M.
    pub(crate) for_main_m: bool,
}

/// A goroutine that was started.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) g: &'static G,
    pub(crate) id: u64,
    /// What is to be waited for after its end, where it is a thread: its thread-locals are destroyed
    /// then.
    pub(crate) thread: Option<Box<std::thread::JoinHandle<()>>>,
}
