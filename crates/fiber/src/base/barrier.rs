//! An asymmetric memory barrier: it costs the hot side nothing, because the rare side makes every
//! running thread execute a full barrier.
//!
//! Two threads that each write one word and then read the word of the other thread need a full
//! barrier between the two steps, or both may read old values. If one side is hot and the other
//! rare, the hot side uses [`light`] (a compiler fence, no instruction) and the rare side uses
//! [`heavy`] (membarrier: the kernel interrupts every CPU that runs a thread of this process, 1 to
//! 2 µs). If the kernel has no membarrier, both are full barriers.
//!
//! [`light`] never makes a system call, and [`heavy`] never changes errno.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// Whether the kernel has membarrier and this process is registered for it. While this is false,
/// [`light`] is a full barrier.
static HAS_MEMBARRIER: AtomicBool = AtomicBool::new(false);

/// Registers the process for membarrier. Called before `main`, while there is one thread and so no
/// thread is between two barriers; and again in a forked child.
pub(crate) fn init() {
    let has = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    HAS_MEMBARRIER.store(has, Ordering::Relaxed);
}

/// The barrier of the hot side. For each [`heavy`] of another thread, the accesses before `light`
/// take effect before that `heavy`, or the accesses after `light` take effect after that `heavy`.
#[inline(always)]
pub fn light() {
    // PAIR asymmetric: the hot side.
    if HAS_MEMBARRIER.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The barrier of the rare side. When it returns, every running thread of the process has executed
/// a full barrier.
pub fn heavy() {
    // PAIR asymmetric: the rare side.
    fence(Ordering::SeqCst);
    if HAS_MEMBARRIER.load(Ordering::Relaxed) {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
}

fn membarrier(command: i32) -> bool {
    // SAFETY: errno always has an address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno of the calling thread or goroutine.
    let before = unsafe { *errno };
    // SAFETY: membarrier has no precondition.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
    // SAFETY: as above.
    unsafe { *errno = before };
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn two_threads_that_write_then_read_do_not_both_read_old_values() {
        for _ in 0..2_000 {
            let (a, b) = (AtomicU32::new(0), AtomicU32::new(0));
            let seen = std::thread::scope(|scope| {
                let hot = scope.spawn(|| {
                    a.store(1, Ordering::Relaxed);
                    light();
                    b.load(Ordering::Relaxed)
                });
                b.store(1, Ordering::Relaxed);
                heavy();
                a.load(Ordering::Relaxed) + hot.join().unwrap()
            });
            assert_ne!(seen, 0);
        }
    }
}
