//! Locks and the other types of `sync`: used by goroutines, by threads, and by both at once.

use gosched::sync::{Barrier, Condvar, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup};
use gosched::{chan, go, run, runtime, time, yield_now};
use gosched_tests::actors::{run_alternating, should_yield};
use gosched_tests::wait::{LIMIT, eventually, retry_until_eq, settle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

#[test]
fn a_mutex_has_one_holder_at_a_time() {
    let mutex = Arc::new(Mutex::new(0u64));
    let inside = Arc::new(AtomicBool::new(false));
    let shared = mutex.clone();
    run_alternating(8, move |_| {
        for i in 0..2000 {
            let mut guard = shared.lock();
            assert!(!inside.swap(true, SeqCst));
            *guard += 1;
            if i % 100 == 0 {
                yield_now();
            }
            inside.store(false, SeqCst);
        }
    });
    assert_eq!(*mutex.lock(), 16_000);
}

#[test]
fn try_lock_fails_on_a_held_mutex() {
    let mutex = Mutex::new(1);
    let guard = mutex.lock();
    assert!(mutex.try_lock().is_none());
    assert_eq!(format!("{mutex:?}"), "Mutex { <locked> }");
    drop(guard);
    assert_eq!(*mutex.try_lock().unwrap(), 1);
    assert_eq!(mutex.into_inner(), 1);
}

#[test]
fn a_holder_that_panics_releases_the_mutex() {
    let mutex = Mutex::new(1);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _guard = mutex.lock();
        panic!("with the guard");
    }));
    assert!(caught.is_err());
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn try_lock_for_times_out_and_leaves_the_mutex_usable() {
    run(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let waits: Vec<_> = (1..20)
            .map(|i| {
                let mutex = mutex.clone();
                go(move || {
                    let start = Instant::now();
                    assert!(mutex.try_lock_for(i * MILLI).is_none());
                    assert!(start.elapsed() >= i * MILLI);
                })
            })
            .collect();
        waits.into_iter().for_each(|wait| wait.join().unwrap());
        drop(guard);
        assert!(mutex.try_lock().is_some());
        assert!(mutex.try_lock_for(Duration::ZERO).is_some());
    });
}

#[test]
fn a_caught_goexit_does_not_release_a_mutex_held_by_another_goroutine() {
    run(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let shared = mutex.clone();
        let exits = go(move || {
            let caught = catch_unwind(AssertUnwindSafe(|| gosched::goexit()));
            assert!(caught.is_err());
            // The next wait resumes the exit.
            drop(shared.try_lock_for(LIMIT));
            unreachable!("it has exited");
        });
        assert!(exits.join().unwrap_err().is_goexit());
        assert!(mutex.try_lock().is_none(), "it is still held");
        drop(guard);
    });
}

#[test]
fn timeouts_that_race_with_unlocks_lose_no_waiter() {
    let mutex = Arc::new(Mutex::new(0u64));
    let got = Arc::new(AtomicUsize::new(0));
    let (shared, counted) = (mutex.clone(), got.clone());
    run_alternating(8, move |me| {
        for i in 0..500u32 {
            let wait = Duration::from_micros(u64::from(i * 7 % 60));
            let guard = match (me + i as usize) % 3 {
                0 => Some(shared.lock()),
                _ => shared.try_lock_for(wait),
            };
            if let Some(mut guard) = guard {
                *guard += 1;
                counted.fetch_add(1, SeqCst);
                if i % 16 == 0 {
                    time::sleep(Duration::from_micros(30));
                }
            }
        }
    });
    assert_eq!(*mutex.lock(), got.load(SeqCst) as u64);
}

#[test]
fn a_mutex_does_not_starve_a_waiter() {
    // The hog holds the mutex for long periods and locks it again at once.
    run(|| {
        let mutex = Arc::new(Mutex::new(()));
        let (over, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (shared, ended, holds) = (mutex.clone(), over.clone(), held.clone());
        let hog = go(move || {
            while !ended.load(SeqCst) {
                let guard = shared.lock();
                holds.store(true, SeqCst);
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(100) {
                    std::hint::spin_loop();
                }
                if runtime::procs() == 1 {
                    yield_now();
                }
                holds.store(false, SeqCst);
                drop(guard);
            }
        });
        // The bench `limits` measures how long each wait takes.
        let waits = go(move || {
            for _ in 0..10 {
                while !held.load(SeqCst) {
                    yield_now();
                }
                drop(mutex.lock());
            }
        });
        waits.join_timeout(LIMIT).expect("a goroutine that waits gets the mutex").unwrap();
        over.store(true, SeqCst);
        hog.join().unwrap();
    });
}

#[test]
fn readers_hold_an_rwlock_together_and_a_writer_holds_it_alone() {
    let lock = Arc::new(RwLock::new((0u64, 0u64)));
    let reads = lock.read();
    let shared = lock.clone();
    assert_eq!(go(move || *shared.read()).join().unwrap(), *reads);
    drop(reads);
    let (shared, reading) = (lock.clone(), AtomicUsize::new(0));
    run_alternating(8, move |me| {
        for i in 0..500 {
            if (me + i) % 4 == 0 {
                let mut value = shared.write();
                assert_eq!(reading.load(SeqCst), 0);
                value.0 += 1;
                if should_yield(me, i) {
                    yield_now();
                }
                value.1 += 1;
            } else {
                let value = shared.read();
                reading.fetch_add(1, SeqCst);
                assert_eq!(value.0, value.1);
                if should_yield(me, i) {
                    yield_now();
                }
                reading.fetch_sub(1, SeqCst);
            }
        }
    });
    assert_eq!(lock.read().0, 1000);
}

#[test]
fn a_waiting_writer_blocks_new_readers_until_it_times_out() {
    run(|| {
        let lock = Arc::new(RwLock::new(0));
        let reading = lock.read();
        let shared = lock.clone();
        let gives_up = move || go(move || shared.try_write_for(300 * MILLI).is_none());
        let mut writer = gives_up.clone()();
        eventually(|| {
            // The writer may have timed out before `try_read` was called.
            if writer.is_finished() {
                writer = gives_up.clone()();
            }
            lock.try_read().is_none()
        });
        let shared = lock.clone();
        let reader = go(move || drop(shared.read()));
        assert!(writer.join().unwrap());
        reader.join().unwrap();
        drop(reading);
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn waiting_readers_run_before_the_next_writer() {
    // A test cannot observe that a goroutine waits. After `settle`, both wait when the first writer
    // is done.
    let came_before = || {
        let lock = Arc::new(RwLock::new(0));
        let writing = lock.write();
        let shared = lock.clone();
        let writer = go(move || *shared.write() += 1);
        settle();
        let shared = lock.clone();
        let reader = go(move || *shared.read() == 0);
        settle();
        drop(writing);
        writer.join().unwrap();
        reader.join().unwrap()
    };
    run(move || retry_until_eq(true, came_before));
}

#[test]
fn notify_one_wakes_waiters_in_the_order_of_their_arrival() {
    run(|| {
        let pair = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let waits: Vec<_> = (0..5)
            .map(|i| {
                let waits = pair.clone();
                let waiter = go(move || {
                    let mut guard = waits.0.lock();
                    guard.push(100 + i);
                    guard = waits.1.wait(guard);
                    guard.push(i);
                });
                // The waiter holds the mutex until it waits.
                eventually(|| pair.0.lock().last() == Some(&(100 + i)));
                waiter
            })
            .collect();
        for i in 0..5 {
            pair.1.notify_one();
            eventually(|| pair.0.lock().last() == Some(&i));
        }
        pair.1.notify_one();
        waits.into_iter().for_each(|wait| wait.join().unwrap());
    });
}

#[test]
fn notify_all_wakes_all_current_waiters_and_no_later_waiter() {
    run(|| {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let waits: Vec<_> = (0..20)
            .map(|_| {
                let pair = pair.clone();
                go(move || {
                    let mut guard = pair.0.lock();
                    *guard += 1;
                    drop(pair.1.wait(guard));
                })
            })
            .collect();
        while *pair.0.lock() < 20 {
            yield_now();
        }
        pair.1.notify_all();
        waits.into_iter().for_each(|wait| wait.join().unwrap());
        let (guard, notified) = pair.1.wait_timeout(pair.0.lock(), 5 * MILLI);
        assert!(!notified);
        assert_eq!(*guard, 20);
    });
}

#[test]
fn call_once_runs_once_and_every_caller_sees_its_effect() {
    let once = Arc::new((Once::new(), AtomicUsize::new(0)));
    let shared = once.clone();
    run_alternating(10, move |_| {
        shared.0.call_once(|| {
            time::sleep(2 * MILLI);
            shared.1.fetch_add(1, SeqCst);
        });
        assert_eq!(shared.1.load(SeqCst), 1);
    });
    assert!(once.0.is_completed());
}

#[test]
fn a_call_once_that_panicked_is_not_completed() {
    let once = Once::new();
    assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic!("the first")))).is_err());
    assert!(!once.is_completed());
    let mut ran = false;
    once.call_once(|| ran = true);
    assert!(ran && once.is_completed());
}

#[test]
fn a_once_lock_is_written_once_and_each_value_is_dropped_once() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let lock = OnceLock::new();
    assert!(lock.get().is_none());
    lock.get_or_init(|| Counted(drops.clone()));
    assert!(lock.set(Counted(drops.clone())).is_err());
    assert_eq!(drops.load(SeqCst), 1);
    drop(lock);
    assert_eq!(drops.load(SeqCst), 2);
    assert!(OnceLock::<Counted>::new().into_inner().is_none());
}

#[test]
fn a_wait_group_waits_for_all_goroutines_however_they_end() {
    run(|| {
        let (all, ended) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
        for i in 0..100 {
            let ended = ended.clone();
            all.go(move || {
                yield_now();
                ended.fetch_add(1, SeqCst);
                match i % 50 {
                    7 => panic!("on purpose"),
                    8 => gosched::goexit(),
                    _ => {}
                }
            });
        }
        all.wait();
        assert_eq!(ended.load(SeqCst), 100);
        all.wait();
        all.add(1);
        assert!(!all.wait_timeout(2 * MILLI));
        let other = all.clone();
        go(move || other.done());
        assert!(all.wait_timeout(LIMIT));
    });
}

#[test]
fn too_many_calls_of_done_panic_with_the_remedy() {
    let caught = catch_unwind(|| WaitGroup::new().done()).unwrap_err();
    let text = caught.downcast_ref::<&str>().unwrap();
    assert!(text.contains("call `add` for each"), "{text}");
}

#[test]
fn a_large_request_for_permits_is_not_overtaken() {
    run(|| {
        let semaphore = Arc::new(Semaphore::new(3));
        let (log_tx, log) = chan::<&str>(10);
        let first = semaphore.acquire(2);
        let mut all = Vec::new();
        for (name, count) in [("three", 3), ("one", 1)] {
            let (wanted, log) = (semaphore.clone(), log_tx.clone());
            all.push(go(move || {
                let permit = wanted.acquire(count);
                log.send(name).unwrap();
                drop(permit);
            }));
            eventually(|| semaphore.try_acquire(1).is_none());
        }
        drop(first);
        all.into_iter().for_each(|each| each.join().unwrap());
        assert_eq!([log.recv(), log.recv()], [Ok("three"), Ok("one")]);
        assert_eq!(semaphore.available(), 3);
    });
}

#[test]
fn a_request_that_times_out_unblocks_the_requests_behind_it() {
    run(|| {
        let semaphore = Arc::new(Semaphore::new(2));
        let held = semaphore.acquire(1);
        let large = semaphore.clone();
        let large = go(move || large.acquire_timeout(2, 10 * MILLI).is_none());
        time::sleep(2 * MILLI);
        let small = semaphore.clone();
        let small = go(move || small.acquire(1).count());
        assert!(large.join().unwrap());
        assert_eq!(small.join().unwrap(), 1);
        drop(held);
        assert_eq!(semaphore.available(), 2);
    });
}

#[test]
fn a_request_for_more_permits_than_exist_panics_with_the_remedy() {
    let semaphore = Semaphore::new(3);
    let caught = catch_unwind(AssertUnwindSafe(|| drop(semaphore.acquire(4)))).unwrap_err();
    assert!(caught.downcast_ref::<String>().unwrap().contains("acquire at most that many"));
}

#[test]
fn a_semaphore_never_grants_more_permits_than_it_has() {
    let semaphore = Arc::new(Semaphore::new(5));
    let inside = Arc::new(AtomicUsize::new(0));
    let shared = semaphore.clone();
    run_alternating(10, move |me| {
        for i in 0..300 {
            let count = 1 + (me + i) % 3;
            let _permit = shared.acquire(count);
            assert!(inside.fetch_add(count, SeqCst) + count <= 5);
            if should_yield(me, i) {
                yield_now();
            }
            inside.fetch_sub(count, SeqCst);
        }
    });
    assert_eq!(semaphore.available(), 5);
}

#[test]
fn a_barrier_releases_all_waiters_together_and_has_one_leader() {
    let barrier = Arc::new((Barrier::new(6), AtomicUsize::new(0), AtomicUsize::new(0)));
    let shared = barrier.clone();
    run_alternating(6, move |_| {
        for round in 0..50 {
            shared.1.fetch_add(1, SeqCst);
            if shared.0.wait().is_leader() {
                shared.2.fetch_add(1, SeqCst);
            }
            assert!(shared.1.load(SeqCst) >= 6 * (round + 1));
        }
    });
    assert_eq!((barrier.1.load(SeqCst), barrier.2.load(SeqCst)), (300, 50));
}

// With one P, the waiter that `done` makes ready has not run when `add` is called.
// Go: "WaitGroup is reused before previous Wait has returned".
#[gosched::test(virtual_time, seed = 1)]
#[cfg_attr(feature = "threads", ignore = "the order of threads is the system's")]
#[should_panic(expected = "use another group for the next round")]
fn a_wait_group_reused_before_its_waiters_return_panics() {
    let group = WaitGroup::new();
    for _ in 0..100 {
        group.add(1);
        let waits = go({
            let group = group.clone();
            move || group.wait()
        });
        gosched::time::sleep(Duration::from_millis(1));
        group.done();
        group.add(1);
        group.done();
        waits.join().unwrap();
    }
}
