//! Waits for locks whose number is known, for the suite `metrics` and the bench `limits`.

use gosched::{go, yield_now};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Goroutines, two at most, go round three locks, hand over hand, so many steps each. Returns how long each wait took,
/// by their own clocks, the shortest first.
///
/// A goroutine that has two locks holds the other one up, so there is none to yield to. When it lets the first lock
/// go, it waits for the next, which the other goroutine has. On one P they leave for nothing else.
///
/// # Panics
/// A goroutine does.
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
