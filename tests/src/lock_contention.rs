//! A known number of waits for locks, for the suite `metrics` and the bench `limits`.

use gosched::{go, yield_now};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts at most two goroutines that each take `steps` steps around a ring of three locks: a
/// goroutine locks the next lock before it unlocks the previous one. Returns the length of each
/// wait as the goroutine measured it, shortest first.
///
/// While a goroutine holds two locks, the other goroutine waits for one of them, so yielding runs
/// nothing else. When a goroutine unlocks its first lock, it waits for the next one, which the
/// other goroutine holds. On one P the goroutines switch for no other reason.
///
/// # Panics
/// A goroutine panicked.
pub fn contend_for_locks(goroutines: usize, steps: usize) -> Vec<Duration> {
    let locks = Arc::new([const { gosched::sync::Mutex::new(()) }; 3]);
    let walk = move |locks: &[gosched::sync::Mutex<()>; 3], start: usize| {
        let mut waits = Vec::with_capacity(steps);
        let mut held = locks[start % 3].lock();
        for at in start + 1..=start + steps {
            let start = Instant::now();
            let next = locks[at % 3].lock();
            waits.push(start.elapsed());
            (0..20).for_each(|_| yield_now());
            drop(std::mem::replace(&mut held, next));
        }
        waits
    };
    let handles: Vec<_> = (0..goroutines)
        .map(|number| {
            let locks = locks.clone();
            go(move || walk(&locks, 2 * number))
        })
        .collect();
    let mut waits: Vec<_> = handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect();
    waits.sort_unstable();
    waits
}
