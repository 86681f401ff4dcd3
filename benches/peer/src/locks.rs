//! Workloads on locks.

use crate::common::{Measured, timed, work};
use crate::wait_group::WaitGroup;
use gosched::go;
use gosched::sync::Mutex;
use std::hint::black_box;
use std::sync::Arc;

/// Number of tasks that contend for one mutex.
pub(crate) const TASKS: u64 = 8;
/// Number of steps of [`work`] while the mutex is held.
const STEPS: u32 = 10;

pub(crate) fn uncontended(n: u64) -> Measured {
    let mutex = black_box(Box::new(Mutex::new(())));
    // The count is beside the mutex, not in it, as in Go's peer.
    let count = timed(|| {
        let mut count = 0;
        for _ in 0..n {
            let guard = mutex.lock();
            count += 1;
            drop(guard);
        }
        count
    });
    Measured::new(n, count).with("mutex", "sync::Mutex")
}

pub(crate) fn contended(n: u64) -> Measured {
    let each = n / TASKS;
    let mutex = Arc::new(Mutex::new((0u64, 1u64)));
    let count = timed(|| {
        let all = WaitGroup::new(TASKS);
        for _ in 0..TASKS {
            let (all, mutex) = (all.clone(), mutex.clone());
            go(move || {
                for _ in 0..each {
                    let mut guard = mutex.lock();
                    guard.0 += 1;
                    guard.1 = work(guard.1, STEPS);
                }
                all.done();
            });
        }
        all.wait();
        mutex.lock().0
    });
    Measured::new(each * TASKS, count).with("mutex", "sync::Mutex")
}
