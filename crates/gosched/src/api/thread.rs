//! Functions about a goroutine and its thread. This module never chooses the next goroutine or its
//! thread: `sched` does.

use crate::block::exit;
use crate::gmp::current;
use crate::sched;

/// Lets other goroutines run: the calling goroutine moves to the end of the global run queue.
///
/// On an ordinary thread, this is [`std::thread::yield_now`].
#[doc(alias = "Gosched")]
#[inline]
pub fn yield_now() {
    exit::resume_if_exiting();
    sched::yield_now();
}

/// Locks the calling goroutine to its thread.
///
/// Until [`unlock_os_thread`] has been called as often as `lock_os_thread`, the goroutine runs only
/// on this thread, and the thread runs no other goroutine. If the goroutine ends while it is
/// locked, its thread ends too. On an ordinary thread, the call does nothing.
///
/// Use it for libraries and system calls that affect only the calling thread. Each switch to or
/// from a locked goroutine involves two threads, and is about a hundred times slower than other
/// switches.
#[doc(alias = "LockOSThread")]
pub fn lock_os_thread() {
    if let Some(g) = current::goroutine() {
        sched::lock_os_thread(g);
    }
}

/// Undoes one call of [`lock_os_thread`]. Does nothing if the goroutine is not locked.
#[doc(alias = "UnlockOSThread")]
pub fn unlock_os_thread() {
    if let Some(g) = current::goroutine() {
        sched::unlock_os_thread(g);
    }
}
