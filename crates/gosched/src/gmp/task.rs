//! The work of a G as the scheduler sees it: a function to run, and a function to call at the end.
//! This module never runs a task and never frees one: `sched` runs it, and `block` frees it.

use std::ops::Range;

/// The head of the record that `block::goroutine` allocates for a goroutine.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) kind: &'static TaskKind,
}

/// What all tasks of one type have in common.
#[derive(Debug)]
pub(crate) struct TaskKind {
    /// Runs the task as the goroutine, and stores the result. Does not unwind. Returns false if no
    /// handle is left to receive the result: the record is then freed, and `complete` must not be
    /// called.
    pub(crate) run: unsafe fn(*mut Task) -> bool,
    /// Reports that the task has ended. Called after the goroutine's thread-locals have been
    /// destroyed: it must not use thread-locals, nor free memory.
    pub(crate) complete: unsafe fn(*mut Task),
    /// Returns the type name of the closure, for reports.
    pub(crate) name: fn() -> &'static str,
    pub(crate) offsets: Option<TaskOffsets>,
}

/// Offsets of fields in the record of a task, for inspectors.
#[derive(Debug)]
pub(crate) struct TaskOffsets {
    /// The state word. A G that waits for the end of the goroutine parks with its address.
    pub(crate) state: usize,
    /// The pointer to the scope. A scope that waits for its goroutines parks with that pointer.
    pub(crate) scope: usize,
    /// The closure that the goroutine was started with. Its bytes remain after the goroutine has
    /// moved it out.
    pub(crate) closure: Range<usize>,
}
