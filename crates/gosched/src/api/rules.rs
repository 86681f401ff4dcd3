//! The runtime's own rules, for tests to break: not for programs to call.

use crate::{observe, sched};

/// Runs `f` as the runtime's own code runs: it must not allocate, wait, or panic.
pub fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    sched::with_preemption_off(f)
}

/// Runs `f` while nothing else does: it must not allocate, wait, or panic.
pub fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
    sched::with_world_stopped(f)
}

/// How often a P was taken from a thread that was blocked: in marked calls, and in others.
pub fn hand_offs() -> (u64, u64) {
    sched::retake_counts()
}

/// How often goroutines were preempted so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preemptions {
    /// Switched away whole.
    pub moved: u64,
    /// Stopped with their thread.
    pub in_place: u64,
    /// Of these, how many outside the program's own text: in libc, in a library.
    pub outside: u64,
    /// Put off for a moment, since they were there.
    pub deferred: u64,
}

/// See [`Preemptions`].
pub fn preemptions() -> Preemptions {
    let [moved, in_place, outside, deferred] = sched::preemptions();
    Preemptions { moved, in_place, outside, deferred }
}

/// Walks over the frames of all goroutines, as a dump does, names none and writes nothing: how many goroutines there
/// are, and how many frames.
pub fn walk_all() -> (usize, usize) {
    observe::count_goroutines_and_frames()
}
