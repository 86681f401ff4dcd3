//! All waiting operations of the runtime, used by goroutines that are preempted all the time.

use crate::harness::{self, Heartbeat, MILLI, burn_micros, is_over, spawn_group};
use gosched::sync::{Condvar, Mutex, RwLock, Semaphore};
use gosched::{chan, go, select, time};
use gosched_tests::alloc_blocks::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[derive(Default)]
struct Totals {
    sent: AtomicU64,
    received: AtomicU64,
    counted: AtomicU64,
    fired: AtomicU64,
}

/// Checks totals: each sent value is received once, counters are exact, and each timer fires once.
pub(crate) fn mixed() {
    let totals = Arc::new(Totals::default());
    let (left, right) = (chan::<u64>(0), chan::<u64>(7));
    let receivers = {
        let (left, right, totals) = (left.1, right.1, totals.clone());
        spawn_group("a goroutine that selects", 4, move |_, lane: &Heartbeat| {
            let (mut left, mut right) = (Some(left.clone()), Some(right.clone()));
            while left.is_some() || right.is_some() {
                let value = select! {
                    recv(left) -> value => value.inspect_err(|_| left = None),
                    recv(right) -> value => value.inspect_err(|_| right = None),
                };
                totals.received.fetch_add(value.unwrap_or(0), SeqCst);
                burn_micros(20);
                lane.step();
            }
        })
    };
    let senders = {
        let (left, right, totals) = (left.0, right.0, totals.clone());
        spawn_group("a goroutine that sends", 4, move |number, lane: &Heartbeat| {
            let mut random = Random::new(number as u64);
            while !is_over() {
                let value = 1 + random.below(1000) as u64;
                burn_micros(random.below(40) as u64);
                match random.below(3) {
                    0 => left.send(value).unwrap(),
                    1 => right.send(value).unwrap(),
                    _ => select! {
                        send(left, value) -> sent => sent.unwrap(),
                        send(right, value) -> sent => sent.unwrap(),
                    },
                }
                totals.sent.fetch_add(value, SeqCst);
                lane.step();
            }
        })
    };
    let lockers = lockers(&totals);
    let sleepers = sleepers(&totals);
    let counts = [&totals.received, &totals.counted, &totals.fired];
    harness::wait_for_and_stop(|_| counts.iter().all(|count| count.load(SeqCst) > 10));
    senders.join();
    receivers.join();
    let locked: u64 = lockers.join().iter().sum();
    let started: u64 = sleepers.join().iter().sum();
    harness::wait_until("all timers to fire", || totals.fired.load(SeqCst) == started);
    assert_eq!(totals.sent.load(SeqCst), totals.received.load(SeqCst));
    assert_eq!(totals.counted.load(SeqCst), locked);
    println!("received {} locked {locked} fired {started}", totals.received.load(SeqCst));
}

/// Goroutines that hold the runtime's locks while they compute.
fn lockers(totals: &Arc<Totals>) -> harness::GoroutineGroup<u64> {
    let (mutex, changed) = (Mutex::new(0u64), Condvar::new());
    let (table, permits, inside) =
        (RwLock::new((0u64, 0u64)), Semaphore::new(2), AtomicU64::new(0));
    let totals = totals.clone();
    spawn_group("a goroutine that locks", 5, move |number, lane: &Heartbeat| {
        let mut random = Random::new(number as u64);
        while !is_over() {
            let micros = random.below(120) as u64;
            match random.below(4) {
                0 => {
                    let mut guard = mutex.lock();
                    let before = *guard;
                    burn_micros(micros);
                    *guard = before + 1;
                    changed.notify_one();
                }
                1 => {
                    let guard = mutex.lock();
                    let before = *guard;
                    let (guard, _) = changed.wait_timeout(guard, MILLI / 5);
                    assert!(*guard >= before);
                }
                2 => {
                    let mut pair = table.write();
                    pair.0 += 1;
                    burn_micros(micros);
                    pair.1 += 1;
                }
                _ => {
                    let permit = permits.acquire(1);
                    assert!(inside.fetch_add(1, SeqCst) < 2, "more than the permits allow");
                    burn_micros(micros);
                    inside.fetch_sub(1, SeqCst);
                    drop(permit);
                    let pair = table.read();
                    assert_eq!(pair.0, pair.1);
                }
            }
            totals.counted.fetch_add(1, SeqCst);
            lane.step();
        }
        lane.steps()
    })
}

/// Goroutines that start timers of every kind. Each returns how many it started.
fn sleepers(totals: &Arc<Totals>) -> harness::GoroutineGroup<u64> {
    let totals = totals.clone();
    spawn_group("a goroutine with timers", 3, move |number, lane: &Heartbeat| {
        let mut random = Random::new(number as u64);
        while !is_over() {
            let duration = MILLI * random.below(20) as u32 / 10;
            let fired = totals.clone();
            match random.below(3) {
                0 => {
                    time::sleep(duration);
                    fired.fired.fetch_add(1, SeqCst);
                }
                1 => {
                    time::after(duration).recv().unwrap();
                    fired.fired.fetch_add(1, SeqCst);
                }
                _ => drop(go(move || {
                    let (tx, rx) = chan::<()>(1);
                    let timer = time::after_func(duration, move || tx.try_send(()).unwrap());
                    burn_micros(50);
                    rx.recv().unwrap();
                    drop(timer);
                    fired.fired.fetch_add(1, SeqCst);
                })),
            }
            lane.step();
        }
        lane.steps()
    })
}
