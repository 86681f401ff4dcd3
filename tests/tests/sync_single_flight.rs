//! Concurrent calls with one key that run once and share the result: Go's `singleflight`.

use gosched::chan::{RecvError, TryRecvError};
use gosched::sync::SingleFlight;
use gosched::{chan, go, goexit, run, yield_now};
use gosched_tests::actors::{in_goroutine_and_thread, join_all, kind_for, should_yield};
use gosched_tests::wait::{retry_until_eq, settle, until};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);

type Flights = SingleFlight<&'static str, usize>;

#[test]
fn sequential_calls_all_run_and_share_no_result() {
    in_goroutine_and_thread(|| {
        let flights = SingleFlight::<String, Arc<u32>>::new();
        for i in 0..10 {
            let (value, shared) = flights.run("key".to_string(), || Arc::new(i));
            assert_eq!((*value, shared), (i, false));
            assert_eq!(Arc::strong_count(&value), 1, "nobody else has it");
        }
    });
}

#[test]
fn concurrent_calls_with_one_key_run_once() {
    retry_until_eq(1, || {
        let flights = Flights::new();
        let (calls, near) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let callers = (0..20).map(|i| {
            let (flights, calls, near) = (flights.clone(), calls.clone(), near.clone());
            kind_for(i).start(move || {
                near.fetch_add(1, SeqCst);
                let fetch = || {
                    while near.load(SeqCst) < 20 {
                        yield_now();
                    }
                    settle();
                    calls.fetch_add(1, SeqCst)
                };
                flights.run("key", fetch)
            })
        });
        let results = join_all(callers.collect::<Vec<_>>());
        let calls = calls.load(SeqCst);
        // `shared` is true exactly for callers that got the same value as another caller.
        for &(value, shared) in &results {
            assert!(value < calls);
            let same = results.iter().filter(|&&(other, _)| other == value).count();
            assert_eq!(shared, same > 1, "{results:?}");
        }
        calls
    });
}

#[test]
fn the_shared_flag_is_right_under_many_concurrent_calls() {
    let flights = Flights::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let callers = (0..12).map(|i| {
        let (flights, calls) = (flights.clone(), calls.clone());
        kind_for(i).start(move || {
            let call = |round: usize| {
                let fetch = || {
                    if should_yield(i, round) {
                        yield_now();
                    }
                    calls.fetch_add(1, SeqCst)
                };
                if round % 31 == i {
                    flights.forget(&"b");
                }
                flights.run(["a", "b", "c"][round % 3], fetch)
            };
            (0..200).map(call).collect::<Vec<_>>()
        })
    });
    let results: Vec<_> = join_all(callers.collect::<Vec<_>>()).into_iter().flatten().collect();
    let mut served = vec![0; calls.load(SeqCst)];
    results.iter().for_each(|&(value, _)| served[value] += 1);
    assert!(served.iter().all(|&served| served > 0), "each call was somebody's");
    assert!(results.iter().all(|&(value, shared)| shared == (served[value] > 1)));
}

#[test]
fn a_forgotten_call_is_not_joined_and_does_not_end_a_later_call() {
    // A test cannot observe that the third caller waits for the second.
    in_goroutine_and_thread(|| retry_until_eq(((2, true), Ok((2, true))), third_joins_second));
}

/// Makes three calls, of which the first is forgotten. Returns the results of the third and of the
/// second.
fn third_joins_second() -> ((usize, bool), Result<(usize, bool), RecvError>) {
    let flights = Flights::new();
    let ((started, has_started), (first, go_first)) = (chan::<()>(0), chan::<()>(0));
    let (second, go_second) = chan::<()>(0);
    let one = flights.clone();
    let one = go(move || {
        one.run("key", || {
            started.send(()).unwrap();
            go_first.recv().unwrap_err();
            1
        })
    });
    has_started.recv().unwrap();
    flights.forget(&"key");
    flights.forget(&"no such key");
    let (started, has_started) = chan::<()>(0);
    let two = flights.run_chan("key", move || {
        started.send(()).unwrap();
        go_second.recv().unwrap_err();
        2
    });
    has_started.recv().unwrap();
    drop(first);
    assert_eq!(one.join().unwrap(), (1, false));
    // The end of the first call has not ended the second.
    let three = flights.clone();
    let three = go(move || three.run("key", || 3));
    settle();
    assert!(!three.is_finished(), "it waits for the second");
    drop(second);
    let results = (three.join().unwrap(), two.recv());
    assert_eq!(flights.run("key", || 4), (4, false));
    results
}

#[test]
fn run_chan_has_started_or_joined_a_call_when_it_returns() {
    in_goroutine_and_thread(|| {
        for _ in 0..20 {
            let flights = Flights::new();
            let (release, released) = chan::<()>(0);
            let first = flights.run_chan("key", move || {
                released.recv().unwrap_err();
                1
            });
            let second = flights.run_chan("key", || 2);
            // As with Go's `DoChan`, the call is joined or started when `run_chan` returns.
            assert!(second.recv_timeout(MILLI).is_err(), "there is one to wait for");
            drop(release);
            assert_eq!((first.recv(), second.recv()), (Ok((1, true)), Ok((1, true))));
        }
    });
}

#[test]
fn run_chan_delivers_its_result_once() {
    in_goroutine_and_thread(|| {
        let flights = Flights::new();
        let rx = flights.run_chan("key", || 5);
        assert_eq!(rx.recv(), Ok((5, false)));
        assert_eq!(rx.recv(), Err(RecvError));
        let rx = flights.run_chan("key", || resume_unwind(Box::new("no value")));
        assert_eq!(rx.recv(), Err(RecvError));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
        let rx = flights.run_chan("key", || goexit());
        assert_eq!(rx.recv(), Err(RecvError));
        // The call runs even if its receiver is dropped.
        let (tx, made) = chan::<()>(1);
        drop(flights.run_chan("key", move || tx.send(()).map_or(0, |()| 1)));
        assert_eq!(made.recv(), Ok(()));
    });
}

#[test]
fn waiters_of_a_call_without_a_value_panic_and_the_key_is_free() {
    for by_goexit in [false, true] {
        retry_until_eq((4, true), || {
            let flights = Flights::new();
            let ((started, has_started), (release, released)) = (chan::<()>(0), chan::<()>(0));
            let leads = flights.clone();
            let leads = go(move || {
                leads.run("key", || {
                    started.send(()).unwrap();
                    released.recv().unwrap_err();
                    if by_goexit { goexit() } else { resume_unwind(Box::new("the leader's")) }
                })
            });
            has_started.recv().unwrap();
            let waiters = (0..4).map(|i| {
                let flights = flights.clone();
                kind_for(i).start(move || {
                    let call = AssertUnwindSafe(|| flights.run("key", || 9));
                    catch_unwind(call).map_err(|payload| {
                        let text = payload.downcast_ref::<&str>().copied().map(String::from);
                        text.or(payload.downcast_ref::<String>().cloned()).unwrap()
                    })
                })
            });
            let waiters: Vec<_> = waiters.collect();
            settle();
            drop(release);
            let error = leads.join().unwrap_err();
            let as_it_should = if by_goexit {
                error.is_goexit()
            } else {
                *error.into_panic().downcast::<&str>().unwrap() == "the leader's"
            };
            let results = join_all(waiters);
            assert_eq!(flights.run("key", || 10), (10, false));
            let told = results.iter().filter_map(|result| result.as_ref().err());
            (told.filter(|text| text.contains("SingleFlight")).count(), as_it_should)
        });
    }
}

#[test]
fn calls_with_different_keys_may_wait_for_each_other() {
    in_goroutine_and_thread(|| {
        let flights = SingleFlight::<u32, u32>::new();
        let ((to_b, b), (to_a, a)) = (chan::<u32>(0), chan::<u32>(0));
        let other = flights.clone();
        let other = go(move || {
            other.run(1, || {
                to_b.send(10).unwrap();
                a.recv().unwrap()
            })
        });
        let mine = flights.run(2, || {
            let value = b.recv().unwrap();
            to_a.send(20).unwrap();
            value
        });
        assert_eq!((mine, other.join().unwrap()), ((10, false), (20, false)));
    });
}

#[test]
fn a_call_may_make_calls_with_other_keys() {
    fn sum(flights: &SingleFlight<u32, u32>, n: u32) -> u32 {
        flights.run(n, || if n == 0 { 0 } else { n + sum(flights, n - 1) }).0
    }
    run(|| {
        let flights = SingleFlight::new();
        assert_eq!(sum(&flights, 20), 210);
        let many = (0..8).map(|_| {
            let flights = flights.clone();
            go(move || sum(&flights, 15))
        });
        let many: Vec<_> = many.collect();
        assert!(many.into_iter().all(|sums| sums.join().unwrap() == 120));
    });
}

/// A value that counts how many of its kind are alive.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Alive {
        count.fetch_add(1, SeqCst);
        Alive(count.clone())
    }
}

impl Clone for Alive {
    fn clone(&self) -> Alive {
        yield_now();
        Alive::new(&self.0)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn a_single_flight_keeps_no_value_after_its_calls() {
    let alive = Arc::new(AtomicUsize::new(0));
    let flights = SingleFlight::<u8, Alive>::new();
    let callers = (0..10).map(|i| {
        let (flights, alive) = (flights.clone(), alive.clone());
        kind_for(i).start(move || {
            for round in 0..50u8 {
                let make = || {
                    yield_now();
                    if round % 9 == 0 {
                        resume_unwind(Box::new(()));
                    }
                    Alive::new(&alive)
                };
                let _ = catch_unwind(AssertUnwindSafe(|| flights.run(round % 2, make)));
                drop(flights.run_chan(round % 2, {
                    let alive = alive.clone();
                    move || Alive::new(&alive)
                }));
            }
        })
    });
    join_all(callers.collect::<Vec<_>>());
    until("all are gone", || alive.load(SeqCst) == 0);
}
