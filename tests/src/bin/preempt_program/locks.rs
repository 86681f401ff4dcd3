//! Locks that are not gosched's, held by goroutines that are preempted.

use crate::harness::{self, Heartbeat, burn_micros, hogs, spawn_group};
use gosched::runtime;
use gosched_tests::alloc_blocks::Random;
use std::cell::UnsafeCell;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of goroutines that compete for the lock.
const COUNT: usize = 6;
/// Number of times that each goroutine must have held the lock before it stops.
const LEAST: u64 = 2;

/// Starts goroutines that each hold the lock repeatedly, for up to 3 ms, until the program is over,
/// beside hogs that only want the Ps. Returns how often each goroutine held the lock.
fn hold_in_turn(name: &'static str, hold: impl Fn(usize, u64) + Send + Sync + 'static) -> Vec<u64> {
    let all = spawn_group(name, COUNT, move |number, lane: &Heartbeat| {
        let mut random = Random::new(number as u64);
        while !harness::is_over() || lane.steps() < LEAST {
            hold(number, random.below(3000) as u64);
            lane.step();
            burn_micros(random.below(1500) as u64);
        }
        lane.steps()
    });
    let beside = hogs(runtime::procs());
    harness::wait_for_moves_and_stop();
    beside.join();
    all.join()
}

/// A mutex of std's. Its counter is read, and written a while later.
pub(crate) fn std_mutex() {
    static COUNTER: Mutex<u64> = Mutex::new(0);
    let held = hold_in_turn("a goroutine that wants a mutex", |_, micros| {
        let mut guard = COUNTER.lock().unwrap();
        let before = *guard;
        burn_micros(micros);
        *guard = before + 1;
    });
    let (sum, counter) = (held.iter().sum::<u64>(), *COUNTER.lock().unwrap());
    assert_eq!(sum, counter, "{held:?}");
    println!("least {}", held.iter().min().unwrap());
}

/// The lock of the standard output: lines written under the lock stay together.
pub(crate) fn stdout() {
    let held = hold_in_turn("a goroutine that wants to write", |number, micros| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "first {number} {micros}").unwrap();
        burn_micros(micros);
        writeln!(out, "second {number} {micros}").unwrap();
    });
    println!("least {}", held.iter().min().unwrap());
}

/// A lock whose waiters spin and never yield.
struct SpinLock {
    held: AtomicBool,
    counter: UnsafeCell<u64>,
}

// SAFETY: only the holder of the lock accesses the counter.
unsafe impl Sync for SpinLock {}

impl SpinLock {
    fn add(&self, micros: u64) {
        while self.held.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the lock is held.
        let before = unsafe { *self.counter.get() };
        burn_micros(micros);
        // SAFETY: the lock is held.
        unsafe { *self.counter.get() = before + 1 };
        self.held.store(false, Ordering::Release);
    }
}

pub(crate) fn spinlock() {
    static LOCK: SpinLock = SpinLock { held: AtomicBool::new(false), counter: UnsafeCell::new(0) };
    let held = hold_in_turn("a goroutine that spins for a lock", |_, micros| LOCK.add(micros / 2));
    // SAFETY: all other goroutines have ended.
    let counter = unsafe { *LOCK.counter.get() };
    assert_eq!(held.iter().sum::<u64>(), counter, "{held:?}");
    println!("least {}", held.iter().min().unwrap());
}
