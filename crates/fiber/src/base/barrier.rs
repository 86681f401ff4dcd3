//! A barrier that costs one side nothing: the rare side makes every running thread pass one.
//!
//! Two threads that each write one word and then read the other's need a full barrier between the
//! two steps, or both may read old values. Where one side is hot and the other rare, the hot one
//! uses [`light`] (the compiler keeps the order, no instruction) and the rare one [`heavy`]
//! (membarrier: the kernel interrupts every CPU that runs a thread of this process, 1 to 2 µs).
//! Where the kernel has no membarrier, both are full barriers.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// The kernel has it, and this process is registered. Until then [`light`] is a full barrier.
static HAS_MEMBARRIER: AtomicBool = AtomicBool::new(false);

/// Asks the kernel, before `main`: while there is one thread, nobody is between two barriers. Again in
/// a forked child.
pub(crate) fn init() {
    let has = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    HAS_MEMBARRIER.store(has, Ordering::Relaxed);
}

/// The hot side: what is before it in the program is before a [`heavy`] of another thread, or what is
/// behind it is after that one.
#[inline(always)]
pub fn light() {
    // PAIR asymmetric: the hot side.
    if HAS_MEMBARRIER.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The rare side: every running thread of the process has passed a full barrier when this returns.
pub fn heavy() {
    // PAIR asymmetric: the rare side.
    fence(Ordering::SeqCst);
    if HAS_MEMBARRIER.load(Ordering::Relaxed) {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
}

fn membarrier(command: i32) -> bool {
    // SAFETY: errno has an address, always.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's (or goroutine's) own word.
    let before = unsafe { *errno };
    // SAFETY: a barrier has no precondition.
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
    fn two_who_write_then_read_do_not_both_miss_the_other() {
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
