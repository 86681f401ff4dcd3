//! Starting goroutines: [`go`] and [`Builder`]. This module never chooses where a goroutine runs:
//! `sched::spawn` queues it.

use super::Goroutine;
use super::join::JoinHandle;
use super::packet::{self, Packet, PacketHandle};
use crate::gmp::current;
use crate::gmp::g::{Details, G};
use crate::sched::{self, SpawnOptions, SpawnRequest, Spawned};
use std::io;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

/// Starts a goroutine that runs `f` concurrently with the caller.
///
/// The goroutine runs on one of a few threads, but to `f` it looks like a thread of its own.
///
/// ```
/// let handle = gosched::go(|| 6 * 7);
/// assert_eq!(handle.join().unwrap(), 42);
/// ```
///
/// By default a panic in `f` ends only this goroutine: see
/// [`PanicPolicy`](crate::runtime::PanicPolicy). The program does not wait for its
/// goroutines: join them, or use [`scope`](crate::scope).
///
/// # Panics
/// This process runs goroutines as OS threads, and the system cannot create a thread.
/// [`Builder::go`] returns this as an error. See [`runtime::backend`](crate::runtime::backend).
///
/// This process is a forked child: call `exec` or exit there.
#[track_caller]
#[inline]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: borrows — none: `'static`.
    match unsafe { start(packet::new(f, None), None, Location::caller()) } {
        Ok(handle) => handle,
        Err(why) => refused(&why),
    }
}

#[cold]
#[track_caller]
fn refused(why: &io::Error) -> ! {
    panic!("`go`: the system cannot create a thread: {why}; `Builder::go` returns this as an error")
}

/// Configures and starts a goroutine with a name, labels or a stack size of its own.
///
/// ```
/// let worker = gosched::Builder::new().name("worker").stack_size(1 << 20).label("kind", "io");
/// let handle = worker.go(|| gosched::current().unwrap().name().map(str::to_owned)).unwrap();
/// assert_eq!(handle.join().unwrap().as_deref(), Some("worker"));
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing starts before `Builder::go`"]
pub struct Builder {
    details: Details,
    stack_size: Option<usize>,
}

impl Builder {
    /// Creates a builder with the default settings.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the name of the goroutine, for dumps and panic messages.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.details.name = Some(name.into());
        self
    }

    /// Sets the minimum number of bytes of stack that the frames of the goroutine can use.
    ///
    /// The default is the value of the environment variable `GOSCHED_STACK`, such as `262144`,
    /// `512k` or `1m`. Without that variable, the default is about 185 KiB, or about 950 KiB with
    /// debug assertions. Sizes below 48 KiB are rounded up. A stack uses physical memory only for
    /// the pages that the goroutine has touched.
    ///
    /// If goroutines are OS threads, `GOSCHED_STACK` has no effect, and the default is that of
    /// [`std::thread`].
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Adds a label to the goroutine, for profiles and dumps.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Builder {
        self.details.labels.push((key.into(), value.into()));
        self
    }

    /// Starts the goroutine: see [`go`].
    ///
    /// # Errors
    /// The stack size is 0 or greater than 64 GiB. Or this process runs goroutines as OS threads,
    /// and the system cannot create a thread.
    #[track_caller]
    pub fn go<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let size = self.stack_size.map(sched::stack_size).transpose()?.flatten();
        let plain = self.details.name.is_none() && self.details.labels.is_empty();
        let details = (!plain).then(|| Arc::new(self.details));
        let spawn_options =
            SpawnOptions { details, size, bytes: self.stack_size, ..SpawnOptions::default() };
        // SAFETY: borrows — none: `'static`.
        unsafe { start(packet::new(f, None), Some(&spawn_options), Location::caller()) }
    }
}

/// Starts the goroutine of a new packet.
///
/// # Errors
/// This process runs goroutines as OS threads, and the system cannot create a thread.
///
/// # Safety
/// - **borrows**: everything that the closure and its result borrow outlives the goroutine.
#[inline]
pub(crate) unsafe fn start<T>(
    packet: NonNull<Packet<T>>,
    options: Option<&SpawnOptions>,
    site: &'static Location<'static>,
) -> io::Result<JoinHandle<T>> {
    // SAFETY: one — the packet is new and has no other handle.
    let handle = unsafe { PacketHandle::from_raw(packet) };
    let parent = current::goroutine().map_or(0, G::id);
    let request = SpawnRequest { task: packet.as_ptr().cast(), site, options };
    match sched::spawn(request) {
        Ok(Spawned { g, id, thread }) => {
            let details = options.and_then(|spawn_options| spawn_options.details.clone());
            Ok(JoinHandle::new(handle, Goroutine::new(g, id, parent, details), thread))
        }
        Err(why) => {
            handle.never_started();
            Err(why)
        }
    }
}
