//! Calls that block the thread, said beforehand: what they all go through.

use super::exit;
use crate::sched;

/// Runs `f`, which may block the thread: others run then.
#[inline]
pub(crate) fn marked<R>(f: impl FnOnce() -> R) -> R {
    call(f, false)
}

/// Runs `f`, which blocks the thread for certain: others run at once.
#[inline]
pub(crate) fn marked_long<R>(f: impl FnOnce() -> R) -> R {
    call(f, true)
}

#[inline]
fn call<R>(f: impl FnOnce() -> R, long: bool) -> R {
    exit::check();
    sched::begin_call(long);
    let _end = End;
    f()
}

/// The call is over when this is dropped, however it ends.
struct End;

impl Drop for End {
    #[inline]
    fn drop(&mut self) {
        sched::end_call();
    }
}
