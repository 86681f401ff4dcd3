//! What the caller is to this runtime: a goroutine, the thread of an M, or an ordinary thread.
//!
//! Check this before you use an M: other code may have carriers and goroutines of its own
//! (`gosched_fiber::Routine`), which this runtime treats as ordinary threads.
//!
//! This module never examines the caller's stack: its answers are thread-locals that other modules
//! set.

use super::g::G;
use std::cell::Cell;

thread_local! {
    /// The G of the goroutine that these thread-locals belong to. Set by the goroutine when it
    /// starts, on both backends. On the threads backend it is cleared when the goroutine ends, and
    /// while the goroutine runs `host`.
    static GOROUTINE: Cell<Option<&'static G>> = const { Cell::new(None) };
    /// Whether these thread-locals belong to the thread of an M, not to a goroutine on it.
    static IS_M: Cell<bool> = const { Cell::new(false) };
    /// Whether the caller has stopped the world.
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

/// Returns the calling goroutine, or `None` on an ordinary thread.
#[inline]
pub(crate) fn goroutine() -> Option<&'static G> {
    GOROUTINE.get()
}

/// Returns whether the caller is a goroutine that runs on Ms, not one that is a thread.
#[inline]
pub(crate) fn is_fiber() -> bool {
    goroutine().is_some_and(|g| !g.is_thread())
}

/// Returns the id of the calling goroutine, or 0 on an ordinary thread.
#[inline]
pub(crate) fn goroutine_id() -> u64 {
    GOROUTINE.get().map_or(0, G::id)
}

/// Records that the code with the caller's thread-locals is the goroutine `g`, or no goroutine.
pub(crate) fn set_goroutine(g: Option<&'static G>) {
    GOROUTINE.set(g);
}

/// Returns whether the caller runs as the thread of an M: on g0, or inside `host`.
pub(crate) fn is_m() -> bool {
    IS_M.get()
}

/// Records whether the code with the caller's thread-locals is the thread of an M.
pub(crate) fn set_is_m(is_m: bool) {
    IS_M.set(is_m);
}

/// Returns whether the caller has stopped the world.
pub(crate) fn has_stopped_the_world() -> bool {
    STOPS.get()
}

/// Records that the caller has stopped the world, or has started it again.
pub(crate) fn set_has_stopped_the_world(has: bool) {
    STOPS.set(has);
}
