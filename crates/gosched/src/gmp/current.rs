//! The caller's own G: a goroutine's, or the one an ordinary thread waits with.

use super::g::G;
use std::cell::Cell;

thread_local! {
    /// Set once in a goroutine's life, by the goroutine. On the threads backend too.
    static GOROUTINE: Cell<Option<&'static G>> = const { Cell::new(None) };
}

/// The goroutine that calls; `None` on an ordinary thread.
#[inline]
pub(crate) fn goroutine() -> Option<&'static G> {
    GOROUTINE.get()
}

/// The code with these thread-locals is `g` from here on.
pub(crate) fn set_goroutine(g: Option<&'static G>) {
    GOROUTINE.set(g);
}
