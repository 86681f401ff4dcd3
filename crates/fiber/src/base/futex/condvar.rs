//! Any system: all words share a few condition variables of std's.
//!
//! A waker takes the bucket's lock after it has changed the word, and a sleeper checks the word
//! with the lock held. So the sleeper sees the change, or receives the notification. A wake-up
//! wakes all sleepers of the bucket, which check their words again.
//!
//! `wake` never reads the word: its address selects the bucket.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The place where threads sleep on the words that share this bucket.
struct Bucket {
    lock: Mutex<()>,
    woken: Condvar,
}

/// Number of buckets, a power of two: about as many as threads are likely to sleep at the same time
/// on a small machine.
const BUCKET_COUNT: usize = 64;

static BUCKETS: [Bucket; BUCKET_COUNT] =
    [const { Bucket { lock: Mutex::new(()), woken: Condvar::new() } }; BUCKET_COUNT];

fn bucket(word: *const AtomicU32) -> &'static Bucket {
    &BUCKETS[(word.addr() >> 3) % BUCKET_COUNT]
}

/// Sleeps while `word` is `expected`. Returns `false` if `timeout` has expired.
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

/// Wakes all threads that sleep on `word`, and possibly others. Uses only the address: the memory
/// of the word may have been freed.
pub fn wake(word: *const AtomicU32, _count: u32) {
    let bucket = bucket(word);
    drop(bucket.lock.lock().unwrap_or_else(PoisonError::into_inner));
    bucket.woken.notify_all();
}
