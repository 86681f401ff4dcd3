//! Records events of any thread. This module never decides what an event means: `probe::event` says
//! it.

use super::current;
use super::m::M;
use crate::probe;
use crate::probe::event::EventKind;
use crate::probe::recorder;

/// Records the event that `event` returns, if a recording is on. Called with preemption off, or by
/// a thread that is no M.
#[inline]
pub(crate) fn record(event: impl FnOnce() -> EventKind) {
    if probe::is_recording() {
        record_on_this_thread(event());
    }
}

#[cold]
fn record_on_this_thread(event: EventKind) {
    match this_m() {
        Some(m) => m.record(event),
        None => recorder::write_on_thread(event),
    }
}

/// Returns the M that the caller runs on, or `None` if the caller is an ordinary thread. Called
/// with preemption off.
pub(crate) fn this_m() -> Option<&'static M> {
    // SAFETY: carried — the caller is a goroutine of this runtime, or the thread of an M.
    (current::is_fiber() || current::is_m()).then(|| unsafe { M::current() })
}
