//! An allocation cache that belongs to the thread a goroutine runs on, in front of any allocator.
//!
//! A goroutine has thread-locals of its own, so an allocator that keeps a heap for each thread would
//! keep one for each goroutine. [`Alloc`] keeps free blocks for each *thread*: a goroutine finds those of
//! the thread that carries it. The allocator behind is entered only as that thread, for large blocks and
//! for the chunks that small ones are cut from.
//!
//! ```text
//! alloc, dealloc ─ magazines of the thread ─ central list of the class ─ spans ─ pool ─ A
//!                  (nanoseconds, no lock)    (one batch, a lock)
//! ```
//!
//! Read in this order: `classes`, `block`, `span`, `pool`, `central`, `cache`, `alloc`.

mod alloc;

#[cfg(target_os = "linux")]
mod before_main;

mod block;

mod cache;

mod classes;

mod clock;

#[cfg(debug_assertions)]
mod checks;

#[cfg(not(debug_assertions))]
#[path = "checks_off.rs"]
mod checks;

#[cfg(unix)]
mod fork;

#[cfg(not(unix))]
#[path = "fork_none.rs"]
mod fork;

mod pool;

mod central;

mod span;

#[cfg(target_os = "linux")]
mod system;

#[cfg(not(target_os = "linux"))]
#[path = "system_none.rs"]
mod system;

#[cfg(test)]
mod tests;

pub use alloc::Alloc;
pub use checks::set_check;
pub use pool::{Stats, stats};

use classes::Class;

/// What the calling thread keeps, or the one that carries the calling goroutine, for all to use. For a
/// thread that is about to sleep for long.
pub fn flush_thread_cache() {
    gosched_fiber::host(cache::flush_current);
}

/// All memory that no block is in, to the system. What other threads keep stays with them: see [`flush_thread_cache`].
pub fn release_memory() {
    flush_thread_cache();
    flush_central_lists();
    pool::scavenge_all();
}

/// All blocks that lie on shelves to their spans: those that nobody uses are any class's.
pub(crate) fn flush_central_lists() {
    for class in Class::all() {
        central::flush(class);
    }
}
