//! Calls that block the thread, said beforehand: what they all go through.
//!
//! A marked call begins with a look whether the goroutine is to end, as every wait does; that look may unwind.
//! A destructor must not: what it closes would stay open. So [`BlockingDrop`] marks without the look.

use super::exit;
use crate::gmp::frame::Registers;
use crate::sched;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};

/// Runs `f`, which may block the thread: others run then.
#[inline]
pub(crate) fn blocking<R>(f: impl FnOnce() -> R) -> R {
    call(f, false)
}

/// Runs `f`, which blocks the thread for certain: others run at once.
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
    // Of this frame, which is there until the call is over.
    let mut registers = MaybeUninit::<Registers>::uninit();
    sched::capture_registers(&mut registers);
    sched::enter_syscall(long, registers.as_ptr());
    let _end = End;
    f()
}

/// The call is over when this is dropped, however it ends.
struct End;

impl Drop for End {
    #[inline]
    fn drop(&mut self) {
        sched::exit_syscall();
    }
}

/// Something that is closed when it is dropped, in a marked call: a close may wait for a disk or a network.
pub(crate) struct BlockingDrop<T>(ManuallyDrop<T>);

impl<T> BlockingDrop<T> {
    #[inline]
    pub(crate) fn new(value: T) -> BlockingDrop<T> {
        BlockingDrop(ManuallyDrop::new(value))
    }

    /// The value, which is not closed.
    pub(crate) fn into_value(self) -> T {
        let mut closing = ManuallyDrop::new(self);
        // SAFETY: nobody has it after this: it is not dropped.
        unsafe { ManuallyDrop::take(&mut closing.0) }
    }
}

impl<T> Drop for BlockingDrop<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nobody has it after this.
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
