//! Threads that libc starts, without std.
//!
//! In a forked child, `std::thread::spawn` may wait forever: a starting thread takes a lock of std,
//! and another thread of the parent may have held this lock during the fork. `pthread_create` may
//! be used there.

use std::ffi::c_void;
use std::ptr;

/// Runs `f` on a new thread, and returns what `f` returns. A panic of `f` ends the process.
///
/// # Panics
/// The thread cannot be started.
pub fn run<R: Send, F: FnOnce() -> R + Send>(f: F) -> R {
    let mut task = Task { f: Some(f), result: None };
    let argument = (&raw mut task).cast();
    let mut thread = 0;
    // SAFETY: `start` gets the task that it expects, which exists until the thread has ended.
    let why = unsafe { libc::pthread_create(&mut thread, ptr::null(), start::<R, F>, argument) };
    assert_eq!(why, 0, "the error number of `pthread_create`");
    // SAFETY: the thread was started above, and is joined once.
    assert_eq!(unsafe { libc::pthread_join(thread, ptr::null_mut()) }, 0);
    task.result.expect("the result of a thread that has ended")
}

struct Task<R, F> {
    f: Option<F>,
    result: Option<R>,
}

extern "C" fn start<R, F: FnOnce() -> R>(task: *mut c_void) -> *mut c_void {
    // SAFETY: `run` passed a task of this type, which no other thread uses before this one ends.
    let task = unsafe { &mut *task.cast::<Task<R, F>>() };
    task.result = task.f.take().map(|f| f());
    ptr::null_mut()
}
