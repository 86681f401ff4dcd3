//! Who the caller is to this runtime: a goroutine, or an ordinary thread.
//!
//! Asked before anything of an M is touched: other code may have carriers and goroutines of its own
//! (`gosched_fiber::Routine`), which this runtime takes for ordinary threads.

use super::g::G;
use std::cell::Cell;

thread_local! {
    /// Set once in a goroutine's life, by the goroutine. On the threads backend too.
    static GOROUTINE: Cell<Option<&'static G>> = const { Cell::new(None) };
    /// Whether this is the own identity of an M's thread.
    static IS_M: Cell<bool> = const { Cell::new(false) };
    /// Whether the caller has stopped the world.
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

/// The goroutine that calls; `None` on an ordinary thread.
#[inline]
pub(crate) fn goroutine() -> Option<&'static G> {
    GOROUTINE.get()
}

/// Whether the caller is a goroutine that Ms run, and not a thread.
#[inline]
pub(crate) fn is_fiber() -> bool {
    goroutine().is_some_and(|g| !g.is_thread())
}

/// The number of the goroutine that calls; 0 on an ordinary thread.
#[inline]
pub(crate) fn goroutine_id() -> u64 {
    GOROUTINE.get().map_or(0, G::id)
}

/// The code with these thread-locals is `g` from here on.
pub(crate) fn set_goroutine(g: Option<&'static G>) {
    GOROUTINE.set(g);
}

/// Whether the caller runs as an M's thread: on g0, or inside `host`.
pub(crate) fn is_m() -> bool {
    IS_M.get()
}

/// The code with these thread-locals is an M's thread from here on, or is none any more.
pub(crate) fn set_is_m(is_m: bool) {
    IS_M.set(is_m);
}

/// Whether the caller has stopped the world.
pub(crate) fn has_stopped_the_world() -> bool {
    STOPS.get()
}

/// The caller has stopped the world, or has let it go on.
pub(crate) fn set_has_stopped_the_world(has: bool) {
    STOPS.set(has);
}
