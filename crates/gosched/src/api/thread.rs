//! A goroutine and its thread.

use crate::block::exit;
use crate::gmp::current;
use crate::sched;

/// Lets other goroutines run: the caller goes to the end of the global queue. On an ordinary thread
/// it is [`std::thread::yield_now`].
#[doc(alias = "Gosched")]
#[inline]
pub fn yield_now() {
    exit::resume_if_exiting();
    sched::yield_now();
}

/// Ties the calling goroutine to its thread, which runs nothing else, until
/// [`unlock_os_thread`] was called as often as this. A goroutine that ends while tied takes its
/// thread with it. On an ordinary thread it does nothing.
///
/// For libraries and system calls whose effect is the thread's. Each hand-over to and from such a
/// goroutine takes two threads and is a hundred times slower than others.
#[doc(alias = "LockOSThread")]
pub fn lock_os_thread() {
    if let Some(g) = current::goroutine() {
        sched::lock_os_thread(g);
    }
}

/// Undoes one [`lock_os_thread`]; without one it does nothing.
#[doc(alias = "UnlockOSThread")]
pub fn unlock_os_thread() {
    if let Some(g) = current::goroutine() {
        sched::unlock_os_thread(g);
    }
}
