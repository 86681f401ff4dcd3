//! A program for the suite `backend` with its own global allocator: one lock for all threads, in
//! the program's own code, as in a statically linked jemalloc or mimalloc. A goroutine that is
//! preempted inside the allocator holds the lock that every thread needs, including new threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::black_box;

/// The system's allocator behind a lock.
struct Locked(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex may be shared between threads.
unsafe impl Sync for Locked {}

#[global_allocator]
static ALLOC: Locked = Locked(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

impl Locked {
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: an initialized mutex that never moves.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        // Takes long enough to be preempted here.
        for turn in 0..200 {
            black_box(turn);
        }
        let result = f();
        // SAFETY: locked above.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
        result
    }
}

// SAFETY: memory comes from the system's allocator.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc`.
        self.with(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        self.with(|| unsafe { System.dealloc(start, layout) });
    }
}

/// Seconds after which the program counts as hung: `gosched_tests::wait::CHILD_LIMIT`.
const LIMIT_SECONDS: u32 = 300;

#[gosched::main(alloc = off)]
fn main() {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(LIMIT_SECONDS) };
    for _ in 0..5 {
        let goroutines: Vec<_> = (0..200).map(|_| gosched::go(allocate)).collect();
        for goroutine in goroutines {
            goroutine.join().unwrap();
        }
    }
    println!("{:?}", gosched::runtime::backend());
}

fn allocate() {
    for round in 0..200 {
        black_box(vec![0u8; 100 + round]);
    }
}
