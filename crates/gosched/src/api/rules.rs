//! Functions for tests of the runtime: they break its internal rules, or return internal counts.
//! Programs do not call them, and the runtime itself never does.

use crate::{observe, sched};

/// Runs `f` with preemption off, like code of the runtime. `f` must not allocate, wait or panic.
pub fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    sched::with_preemption_off(f)
}

/// Runs `f` while the world is stopped. `f` must not allocate, wait or panic.
pub fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
    sched::with_world_stopped(f)
}

/// Returns how often a P was taken from a blocked thread, in marked calls and in unmarked calls.
pub fn hand_offs() -> (u64, u64) {
    sched::retake_counts()
}

/// How often goroutines were preempted since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preemptions {
    /// Number of times a goroutine was switched away, so that any thread can resume it.
    pub moved: u64,
    /// Number of times a goroutine was stopped together with its thread.
    pub in_place: u64,
    /// Number of stops in `in_place` that were outside the program's own text, for example in libc.
    pub outside: u64,
    /// Number of requests that were deferred, because the goroutine was outside the program's own
    /// text.
    pub deferred: u64,
}

/// Returns the current counts: see [`Preemptions`].
pub fn preemptions() -> Preemptions {
    let [moved, in_place, outside, deferred] = sched::preemptions();
    Preemptions { moved, in_place, outside, deferred }
}

/// Walks the frames of all goroutines as a dump does, but looks up no names and writes nothing.
/// Returns the number of goroutines and the number of frames.
pub fn walk_all() -> (usize, usize) {
    observe::count_goroutines_and_frames()
}
