//! What a G is to do, as the scheduler sees it: something to run, and something to do at the end.

/// The head of a larger record that the public face lays out.
#[derive(Debug)]
pub(crate) struct Task {
    /// Runs it, as the goroutine, and keeps the result. It does not unwind. False if nobody is left
    /// to hear of the end: then the record is gone, and `complete` must not be called.
    pub(crate) run: unsafe fn(*mut Task) -> bool,
    /// Says that it is done. Runs when the goroutine's thread-locals have been destroyed: it touches
    /// none, and frees nothing.
    pub(crate) complete: unsafe fn(*mut Task),
    /// What it runs, as the compiler names it; for people.
    pub(crate) name: Name,
}

/// See [`Task::name`].
pub(crate) type Name = fn() -> &'static str;
