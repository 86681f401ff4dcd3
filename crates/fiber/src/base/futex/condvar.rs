//! Any system: words share a few condition variables of std's.
//!
//! A waker takes the lock after it changed the word, a sleeper looks at the word with the lock: the
//! change is seen, or the sleeper hears the call. All who sleep in one place wake and look again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Where sleepers of some words wait.
struct Bucket {
    lock: Mutex<()>,
    woken: Condvar,
}

/// A power of two: as many as threads are likely to sleep at a time on a small machine.
const BUCKET_COUNT: usize = 64;

static BUCKETS: [Bucket; BUCKET_COUNT] =
    [const { Bucket { lock: Mutex::new(()), woken: Condvar::new() } }; BUCKET_COUNT];

fn bucket(word: *const AtomicU32) -> &'static Bucket {
    &BUCKETS[(word.addr() >> 3) % BUCKET_COUNT]
}

/// Sleeps while `word` is `expected`. False if `timeout` is over.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    let bucket = bucket(word);
    let guard = bucket.lock.lock().unwrap_or_else(PoisonError::into_inner);
    if word.load(Ordering::Relaxed) != expected {
        return true;
    }
    match timeout {
        None => drop(bucket.woken.wait(guard)),
        Some(timeout) => match bucket.woken.wait_timeout(guard, timeout) {
            Ok((_guard, result)) => return !result.timed_out(),
            Err(poisoned) => return !poisoned.into_inner().1.timed_out(),
        },
    }
    true
}

/// Wakes the threads that sleep on `word`, and perhaps others: an address, which may be nothing any
/// more.
pub fn wake(word: *const AtomicU32, _count: u32) {
    let bucket = bucket(word);
    drop(bucket.lock.lock().unwrap_or_else(PoisonError::into_inner));
    bucket.woken.notify_all();
}
