//! What a G is to do, as the scheduler sees it: something to run, and something to do at the end.

use std::ops::Range;

/// The head of a larger record that the public face lays out.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) kind: &'static TaskKind,
}

/// What all tasks of one type have in common.
#[derive(Debug)]
pub(crate) struct TaskKind {
    /// Runs it, as the goroutine, and keeps the result. It does not unwind. False if nobody is left
    /// to hear of the end: then the record is gone, and `complete` must not be called.
    pub(crate) run: unsafe fn(*mut Task) -> bool,
    /// Says that it is done. Runs when the goroutine's thread-locals have been destroyed: it touches
    /// none, and frees nothing.
    pub(crate) complete: unsafe fn(*mut Task),
    /// What it runs, as the compiler names it; for people.
    pub(crate) name: fn() -> &'static str,
    pub(crate) offsets: Option<TaskOffsets>,
}

/// Where something is in a task's record, for whoever looks at it from outside.
#[derive(Debug)]
pub(crate) struct TaskOffsets {
    /// What one who waits for the end parks with.
    pub(crate) state: usize,
    /// What a scope that waits for the end parks with: a pointer to it.
    pub(crate) scope: usize,
    /// What the goroutine was given when it was started. The bytes stay when it has taken it.
    pub(crate) closure: Range<usize>,
}
