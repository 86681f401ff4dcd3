//! Blocking calls that are marked beforehand, so that the scheduler can give their P to another M.
//!
//! Like every wait, a marked call first checks whether the goroutine is exiting. That check may
//! unwind. A destructor must not unwind at that point, because the value that it closes would stay
//! open. [`BlockingDrop`] therefore marks its call without the check.
//!
//! This module never detects whether a call blocks: sysmon does (`sched/monitor/retake.rs`).

use super::exit;
use crate::gmp::frame::Registers;
use crate::sched;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};

/// Runs `f`, which may block the thread. If `f` does block, other goroutines run meanwhile.
#[inline]
pub(crate) fn blocking<R>(f: impl FnOnce() -> R) -> R {
    call(f, false)
}

/// Runs `f`, which is certain to block the thread. The P is handed off before `f` runs.
#[inline]
pub(crate) fn blocking_now<R>(f: impl FnOnce() -> R) -> R {
    call(f, true)
}

#[inline]
fn call<R>(f: impl FnOnce() -> R, long: bool) -> R {
    exit::resume_if_exiting();
    call_unchecked(f, long)
}

#[inline]
fn call_unchecked<R>(f: impl FnOnce() -> R, long: bool) -> R {
    // The registers of this frame, which exists until the call is over.
    let mut registers = MaybeUninit::<Registers>::uninit();
    sched::capture_registers(&mut registers);
    sched::enter_syscall(long, registers.as_ptr());
    let _end = End;
    f()
}

/// Ends the marked call when dropped, whether `f` returns or unwinds.
struct End;

impl Drop for End {
    #[inline]
    fn drop(&mut self) {
        sched::exit_syscall();
    }
}

/// A value whose destructor runs in a marked call: closing it may wait for a disk or a network.
pub(crate) struct BlockingDrop<T>(ManuallyDrop<T>);

impl<T> BlockingDrop<T> {
    #[inline]
    pub(crate) fn new(value: T) -> BlockingDrop<T> {
        BlockingDrop(ManuallyDrop::new(value))
    }

    /// Returns the value without closing it.
    pub(crate) fn into_value(self) -> T {
        let mut closing = ManuallyDrop::new(self);
        // SAFETY: the value is taken once: `closing` is never dropped.
        unsafe { ManuallyDrop::take(&mut closing.0) }
    }
}

impl<T> Drop for BlockingDrop<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the value is taken once: `self` is not used after its destructor.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        call_unchecked(|| drop(value), false);
    }
}

impl<T> Deref for BlockingDrop<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for BlockingDrop<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for BlockingDrop<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
