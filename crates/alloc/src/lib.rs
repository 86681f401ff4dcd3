//! An allocation cache in front of any allocator. Each thread has a cache, which the goroutines
//! that run on the thread share.
//!
//! A goroutine has its own thread-locals, so an allocator that keeps a heap per thread would keep
//! one per goroutine. [`Alloc`] keeps free blocks per *thread*: a goroutine uses the blocks of the
//! thread that runs it. The allocator behind the cache (`A` below) is called only with the
//! thread-locals of that thread (in a forked child, of the goroutine that forked), for large blocks
//! and for the chunks from which small blocks are cut.
//!
//! ```text
//! alloc, dealloc ─ magazines of the thread ─ central list of the class ─ spans ─ pool ─ A
//!                  (nanoseconds, no lock)    (one batch, a lock)
//! ```
//!
//! Read in this order: `classes`, `block`, `span`, `pool`, `central`, `cache`, `alloc`.
//!
//! The memory of small blocks is never returned to `A`. Its unused parts go back to the system,
//! where the system allows it.

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

/// Moves the blocks that the calling thread has cached to the central lists, where every thread can
/// use them. In a goroutine, flushes the cache of the thread that runs it. Call it on a thread that
/// is about to sleep for a long time.
pub fn flush_thread_cache() {
    gosched_fiber::host(cache::flush_current);
}

/// Returns unused memory to the system. Blocks that other threads have cached stay in their caches:
/// see [`flush_thread_cache`].
pub fn release_memory() {
    flush_thread_cache();
    flush_central_lists();
    pool::scavenge_all();
}

/// Returns all blocks on central lists to their spans. A span with no block handed out goes to the
/// pool, where any class can take it.
pub(crate) fn flush_central_lists() {
    for class in Class::all() {
        central::flush(class);
    }
}
