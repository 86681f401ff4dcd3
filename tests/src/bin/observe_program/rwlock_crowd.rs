//! Readers and writers that all wait for one lock, and the cost of finding which goroutine waits
//! for which.

use gosched::go;
use gosched::runtime::leak_hints;
use gosched::sync::RwLock;
use gosched_tests::wait::until;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);

/// Returns the process's peak memory so far, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Starts `count` writers and `count` readers. Prints how long the hints take, in microseconds, and
/// how much memory they need, in KiB.
pub(crate) fn program(count: usize) {
    let lock = Arc::new(RwLock::new(()));
    let held = lock.write();
    let start = |at: usize| {
        let lock = lock.clone();
        if at < count { go(move || drop(lock.write())) } else { go(move || drop(lock.read())) }
    };
    let handles: Vec<_> = (0..2 * count).map(start).collect();
    until("all wait for the lock", || {
        let leaks = leak_hints(Duration::ZERO).leaks;
        leaks.iter().map(|leak| leak.goroutines.len()).sum::<usize>() == 2 * count
    });
    let before = peak();
    let took = (0..3).map(|_| {
        let start = Instant::now();
        assert!(black_box(leak_hints(LONG)).deadlocks.is_empty());
        start.elapsed()
    });
    let took = took.min().unwrap_or_default();
    println!("micros {} grew {}", took.as_micros(), peak() - before);
    drop(held);
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}
