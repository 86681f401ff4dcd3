//! Makes every lock of the allocator free in a forked child.
//!
//! The fork does not wait for these locks. libc's fork waits for libc's own locks, and the holder
//! of such a lock may be a stopped goroutine that needs one of ours. If another thread was changing
//! a class or the pool at the moment of the fork, the child starts over with an empty one: the
//! blocks or spans in it are lost to the child. So are the blocks that other threads have cached,
//! at most 1.2 MB per thread.
//!
//! The handler never waits for a lock and never allocates.

use crate::central;
use crate::pool::{self, POOL, Pool};
use std::sync::atomic::{AtomicBool, Ordering};

/// Installs the fork handler, unless it is installed.
pub(crate) fn install() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler touches only this crate's locks.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(child)) };
        // It fails if there is no memory: the next call tries again.
        INSTALLED.store(failed == 0, Ordering::Relaxed);
    }
}

extern "C" fn child() {
    // SAFETY: child — the handler runs on the only thread of the child; no code forks with one of
    // these locks held.
    unsafe { POOL.repair_in_child(Pool::reset_after_fork) };
    pool::forget_growth();
    for central in central::all() {
        // SAFETY: child — as above.
        unsafe { central.repair_in_child(central::CentralList::reset_after_fork) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::Class;
    use gosched_fiber::lock::NoPreemptLockGuard;
    use std::sync::Barrier;

    #[test]
    fn a_child_forked_while_another_thread_changes_the_pool_can_free_whole_spans() {
        let _one = crate::tests::one_at_a_time();
        install();
        let class = Class::all().last().unwrap();
        let mut lists = Vec::new();
        while lists.len() < 8 {
            match central::take(class) {
                Some(list) => lists.push(list),
                None => crate::tests::add_chunk(),
            }
        }
        let barrier = Barrier::new(2);
        let status = std::thread::scope(|scope| {
            scope.spawn(|| {
                let _held = NoPreemptLockGuard::new(&POOL);
                barrier.wait();
                barrier.wait();
            });
            barrier.wait();
            // SAFETY: the child uses only this crate, and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: no handler is installed; the signal ends a child that hangs.
                unsafe { libc::alarm(120) };
                let freed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    lists.drain(..).for_each(|list| central::put_some(class, list));
                    central::flush(class);
                }));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(if freed.is_ok() { 9 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: a child of this process; `status` is valid for writes.
            let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
            barrier.wait();
            assert_eq!(ended, child);
            status
        });
        lists.into_iter().for_each(|list| central::put_some(class, list));
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 9, "{status:#x}");
    }
}
