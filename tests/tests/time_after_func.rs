//! Functions that run after a time, by Go's rules since 1.23, except that runs of one function
//! never overlap.

use gosched::chan::{RecvTimeoutError, TryRecvError};
use gosched::sync::Barrier;
use gosched::time::{Timer, after_func, now, sleep};
use gosched::{chan, go, goexit, id, run, select, yield_now};
use gosched_tests::actors::{run_alternating, should_yield};
use gosched_tests::wait::{LIMIT, eventually};
use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

/// Returns the number of goroutines to start: fewer if goroutines are threads.
const fn goroutines(many: usize) -> usize {
    if cfg!(feature = "threads") { many / 100 } else { many }
}

/// Runs `f` on an ordinary thread and in a goroutine.
fn both(f: impl Fn() + Send + Clone + 'static) {
    f();
    go(f).join().unwrap();
}

fn counter() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

/// Counts its drop.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Returns a function that counts its runs and its drop.
fn counting(runs: &Arc<AtomicUsize>, drops: &Arc<AtomicUsize>) -> impl FnMut() + Send + 'static {
    let (runs, counted) = (runs.clone(), Counted(drops.clone()));
    move || {
        let _counted = &counted;
        runs.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_function_runs_once_and_never_too_soon() {
    both(|| {
        for wait in [Duration::ZERO, MILLI, 12 * MILLI] {
            let (tx, rx) = chan::<(Instant, bool)>(9);
            let (start, caller) = (now(), id());
            let other = move || id().is_some() && id() != caller;
            let timer = after_func(wait, move || tx.send((now(), other())).unwrap());
            let (at, in_a_goroutine_of_its_own) = rx.recv_timeout(LIMIT).unwrap();
            assert!(at >= start + wait, "too soon");
            assert!(in_a_goroutine_of_its_own);
            assert_eq!(rx.recv_timeout(5 * MILLI), Err(RecvTimeoutError::Timeout), "once more");
            assert!(!timer.stop());
        }
    });
}

#[test]
fn the_caller_continues_while_the_function_runs() {
    both(|| {
        let (tx, rx) = chan::<u8>(0);
        let (back, answer) = chan::<u8>(0);
        let timer = after_func(Duration::ZERO, move || {
            rx.recv().unwrap();
            back.send(rx.recv().unwrap()).unwrap();
        });
        tx.send(4).unwrap();
        assert!(!timer.stop(), "it was started; this does not wait for its end");
        tx.send(5).unwrap();
        assert_eq!(answer.recv_timeout(LIMIT), Ok(5));
    });
}

#[test]
fn a_function_that_was_stopped_does_not_run_until_it_is_reset() {
    both(|| {
        let (runs, drops) = (counter(), counter());
        let timer = after_func(10 * LONG, counting(&runs, &drops));
        assert!(timer.reset(LONG), "it was to run");
        assert!(timer.stop());
        assert!(!timer.stop() && !timer.stop());
        assert_eq!((runs.load(SeqCst), drops.load(SeqCst)), (0, 0), "a reset may come");
        assert!(!timer.reset(MILLI), "it was stopped");
        eventually(|| runs.load(SeqCst) == 1);
        assert!(!timer.reset(LONG), "it has run");
        assert!(timer.reset(LONG) && timer.stop());
        drop(timer);
        eventually(|| drops.load(SeqCst) == 1);
        assert_eq!(runs.load(SeqCst), 1);
    });
}

#[test]
fn a_reset_moves_a_function_to_an_earlier_or_later_time() {
    both(|| {
        let (tx, rx) = chan::<Instant>(9);
        let timer = after_func(LONG, move || tx.send(now()).unwrap());
        let start = now();
        assert!(timer.reset(5 * MILLI), "sooner");
        let at = rx.recv_timeout(LIMIT).unwrap();
        assert!(at >= start + 5 * MILLI && at < start + LONG);
        // The timer is moved later repeatedly, before it is due.
        timer.reset(LONG / 2);
        for i in 0..20 {
            assert!(timer.reset(LONG / 2 + i * LONG));
        }
        let start = now();
        assert!(timer.reset(10 * MILLI));
        assert!(rx.recv_timeout(LIMIT).unwrap() >= start + 10 * MILLI);
        assert_eq!(rx.recv_timeout(5 * MILLI), Err(RecvTimeoutError::Timeout), "one run for all");
    });
}

#[test]
fn a_function_moved_earlier_by_rapid_resets_is_not_lost() {
    run(|| {
        for round in 0..200 {
            let (tx, rx) = chan::<()>(9);
            let timer = after_func(LONG, move || tx.send(()).unwrap());
            for i in 0..10u32 {
                timer.stop();
                timer.reset(LONG / (i + 1));
            }
            timer.reset(Duration::from_micros(round % 3));
            assert_eq!(rx.recv_timeout(LIMIT), Ok(()));
        }
    });
}

#[test]
fn each_run_has_a_goroutine_of_its_own() {
    both(|| {
        let (tx, rx) = chan::<_>(9);
        let timer = after_func(Duration::ZERO, move || tx.send(id().unwrap()).unwrap());
        let mut ids = HashSet::new();
        for _ in 0..10 {
            assert!(ids.insert(rx.recv_timeout(LIMIT).unwrap()));
            timer.reset(Duration::ZERO);
        }
        assert!(ids.insert(rx.recv_timeout(LIMIT).unwrap()));
    });
}

#[test]
fn runs_of_one_function_never_overlap_and_none_is_lost() {
    both(|| {
        let (go_on, goes_on) = chan::<()>(0);
        let (tx, rx) = chan::<usize>(9);
        let mut number = 0; // State of the `FnMut`.
        let timer = after_func(Duration::ZERO, move || {
            number += 1;
            tx.send(number).unwrap();
            goes_on.recv().unwrap();
        });
        assert_eq!(rx.recv_timeout(LIMIT), Ok(1));
        assert!(!timer.reset(Duration::ZERO), "the first was started");
        assert_eq!(rx.recv_timeout(10 * MILLI), Err(RecvTimeoutError::Timeout), "both at once");
        go_on.send(()).unwrap();
        assert_eq!(rx.recv_timeout(LIMIT), Ok(2), "the one that was due");
        go_on.send(()).unwrap();
        assert_eq!(rx.recv_timeout(5 * MILLI), Err(RecvTimeoutError::Timeout));
    });
}

#[test]
fn a_function_can_stop_and_reset_its_own_timer() {
    both(|| {
        let own: Arc<OnceLock<Timer>> = Arc::new(OnceLock::new());
        let (tx, rx) = chan::<[bool; 4]>(99);
        let mut left = 5;
        let mine = Arc::downgrade(&own);
        let timer = after_func(LONG, move || {
            let own = mine.upgrade().unwrap();
            let timer = own.get().unwrap();
            let first = timer.stop(); // The run has started, so there is nothing to stop.
            left -= 1;
            let states = [first, timer.reset(LONG), timer.stop(), timer.reset(LONG)];
            match left {
                0 => assert!(timer.stop()),
                _ => assert!(timer.reset(Duration::ZERO)),
            }
            tx.send(states).unwrap();
        });
        own.set(timer).unwrap();
        own.get().unwrap().reset(Duration::ZERO);
        for _ in 0..5 {
            assert_eq!(rx.recv_timeout(LIMIT), Ok([false, false, true, false]));
        }
        assert_eq!(rx.recv_timeout(5 * MILLI), Err(RecvTimeoutError::Timeout));
        drop(own);
        assert!(rx.recv_timeout(LIMIT) == Err(RecvTimeoutError::Closed), "the function is gone");
    });
}

#[test]
fn dropping_the_timer_does_not_stop_its_function() {
    both(|| {
        let (runs, drops) = (counter(), counter());
        drop(after_func(10 * MILLI, counting(&runs, &drops)));
        assert!(drops.load(SeqCst) <= runs.load(SeqCst));
        eventually(|| drops.load(SeqCst) == 1);
        assert_eq!(runs.load(SeqCst), 1, "it has run, and was dropped then");
        // The timer is dropped while its function runs.
        let (tx, rx) = chan::<()>(0);
        let counted = Counted(drops.clone());
        let timer = after_func(Duration::ZERO, move || {
            let _counted = &counted;
            rx.recv().unwrap();
            rx.recv().unwrap();
        });
        tx.send(()).unwrap();
        drop(timer);
        assert_eq!(drops.load(SeqCst), 1);
        tx.send(()).unwrap();
        eventually(|| drops.load(SeqCst) == 2);
    });
}

#[test]
fn a_function_is_dropped_once_however_it_ends() {
    both(|| {
        for way in 0..5 {
            let (runs, drops) = (counter(), counter());
            let mut f = counting(&runs, &drops);
            let wait = if way == 0 { LONG } else { MILLI };
            let timer = after_func(wait, move || {
                f();
                match way {
                    1 => resume_unwind(Box::new("in a function")),
                    2 => goexit(),
                    _ => (),
                }
            });
            let expected = match way {
                0 => usize::from(!timer.stop()),
                _ => 1,
            };
            eventually(|| runs.load(SeqCst) == expected);
            if way == 3 {
                assert!(!timer.reset(LONG) && timer.stop());
            }
            if way == 4 {
                assert!(!timer.reset(Duration::ZERO));
                eventually(|| runs.load(SeqCst) == 2);
            }
            assert_eq!(drops.load(SeqCst), 0, "a reset may come");
            drop(timer);
            eventually(|| drops.load(SeqCst) == 1);
            sleep(2 * MILLI);
            assert_eq!(drops.load(SeqCst), 1);
        }
    });
}

#[test]
fn a_panic_or_an_exit_ends_that_run_only() {
    both(|| {
        for exits in [false, true] {
            let (tx, rx) = chan::<usize>(9);
            let (go_on, goes_on) = chan::<()>(0);
            let mut number = 0;
            let timer = after_func(Duration::ZERO, move || {
                number += 1;
                tx.send(number).unwrap();
                goes_on.recv().unwrap();
                if exits { goexit() } else { resume_unwind(Box::new("in a function")) }
            });
            assert_eq!(rx.recv_timeout(LIMIT), Ok(1));
            assert!(!timer.reset(Duration::ZERO)); // This run waits for the first.
            sleep(3 * MILLI);
            go_on.send(()).unwrap();
            assert_eq!(rx.recv_timeout(LIMIT), Ok(2), "exits: {exits}");
            go_on.send(()).unwrap();
            assert!(!timer.reset(MILLI));
            assert_eq!(rx.recv_timeout(LIMIT), Ok(3), "exits: {exits}");
            go_on.send(()).unwrap();
            drop(timer);
            assert_eq!(rx.recv_timeout(LIMIT), Err(RecvTimeoutError::Closed), "it is gone");
        }
    });
}

#[test]
fn the_timer_of_a_function_sends_nothing() {
    run(|| {
        let (runs, drops) = (counter(), counter());
        let timer = after_func(MILLI, counting(&runs, &drops));
        select! {
            recv(timer.chan()) -> _ => unreachable!("it sends nothing"),
            recv(gosched::time::after(10 * MILLI)) -> _ => (),
        }
        eventually(|| runs.load(SeqCst) == 1);
        assert_eq!(timer.chan().try_recv(), Err(TryRecvError::Empty));
        assert!(!timer.chan().is_closed());
        timer.stop();
        assert_eq!(timer.chan().recv_timeout(MILLI), Err(RecvTimeoutError::Timeout));
        assert!(!format!("{timer:?}").is_empty());
    });
}

#[test]
fn a_function_after_the_maximum_duration_never_runs_and_does_not_delay_others() {
    both(|| {
        let (runs, drops) = (counter(), counter());
        let never = after_func(Duration::MAX, counting(&runs, &drops));
        let other = after_func(LONG, counting(&runs, &drops));
        assert!(other.reset(Duration::MAX) && never.reset(Duration::MAX));
        let (tx, rx) = chan::<()>(1);
        drop(after_func(MILLI, move || tx.send(()).unwrap()));
        assert_eq!(rx.recv_timeout(LIMIT), Ok(()));
        assert!(never.stop() && other.stop());
        assert_eq!(runs.load(SeqCst), 0);
    });
}

#[test]
fn a_hundred_thousand_stopped_functions_are_dropped() {
    both(|| {
        let (runs, drops) = (counter(), counter());
        let timers: Vec<_> = (0..100_000u32)
            .map(|i| after_func(LONG + i * 7919 % 1000 * MILLI, counting(&runs, &drops)))
            .collect();
        assert_eq!(drops.load(SeqCst), 0);
        assert!(timers.iter().all(Timer::stop), "each was pending");
        assert!(!timers.iter().any(Timer::stop));
        drop(timers);
        eventually(|| drops.load(SeqCst) == 100_000);
        assert_eq!(runs.load(SeqCst), 0);
    });
}

#[test]
fn many_functions_due_at_one_moment_run_once_each() {
    let count = goroutines(50_000);
    let ran: Arc<Vec<AtomicUsize>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
    let drops = counter();
    let start = now();
    for i in 0..count {
        let (ran, counted) = (ran.clone(), Counted(drops.clone()));
        let wait = (start + 50 * MILLI).saturating_duration_since(now());
        drop(after_func(wait, move || {
            let _counted = &counted;
            ran[i].fetch_add(1, SeqCst);
        }));
    }
    eventually(|| drops.load(SeqCst) == count);
    assert!(ran.iter().all(|ran| ran.load(SeqCst) == 1));
}

#[test]
fn busy_goroutines_do_not_keep_a_function_from_running() {
    for _ in 0..20 {
        run(|| {
            let over = Arc::new(AtomicBool::new(false));
            let (tx, rx) = chan::<bool>(1);
            let ends = over.clone();
            let sends = go(move || {
                while !over.load(SeqCst) {
                    tx.send(true).unwrap();
                }
            });
            let receives = go(move || rx.iter().count());
            drop(after_func(Duration::from_micros(1), move || ends.store(true, SeqCst)));
            sends.join().unwrap();
            receives.join().unwrap();
        });
    }
}

#[test]
fn stops_and_resets_account_for_every_run() {
    // As in Go: a `reset` that returns false adds a run, a `stop` that returns true removes one.
    for round in 0..20 {
        let (runs, drops, inside) = (counter(), counter(), counter());
        let mut f = counting(&runs, &drops);
        let (within, overlaps) = (inside.clone(), counter());
        let seen = overlaps.clone();
        let timer = Arc::new(after_func(Duration::from_micros(round * 10), move || {
            seen.fetch_add(within.fetch_add(1, SeqCst), SeqCst);
            f();
            yield_now();
            within.fetch_sub(1, SeqCst);
        }));
        let (added, stopped) = (counter(), counter());
        let (shared, adds, stops) = (timer.clone(), added.clone(), stopped.clone());
        let start = Arc::new(Barrier::new(6));
        run_alternating(6, move |me| {
            start.wait();
            for i in 0..150 {
                match (me + i) % 3 {
                    0 => stops.fetch_add(usize::from(shared.stop()), SeqCst),
                    _ => {
                        let wait = Duration::from_micros((me + i) as u64 * 7 % 50);
                        adds.fetch_add(usize::from(!shared.reset(wait)), SeqCst)
                    }
                };
                if should_yield(me, i) {
                    yield_now();
                }
            }
        });
        stopped.fetch_add(usize::from(timer.stop()), SeqCst);
        let expected = 1 + added.load(SeqCst) - stopped.load(SeqCst);
        eventually(|| runs.load(SeqCst) >= expected);
        sleep(2 * MILLI);
        assert_eq!(runs.load(SeqCst), expected, "runs");
        assert_eq!(overlaps.load(SeqCst), 0);
        drop(timer);
        eventually(|| drops.load(SeqCst) == 1);
    }
}

#[test]
fn a_stop_at_the_last_moment_returns_true_or_the_function_runs() {
    run_alternating(6, |me| {
        for i in 0..300u64 {
            let (runs, drops) = (counter(), counter());
            let timer = after_func(Duration::from_micros(i % 60), counting(&runs, &drops));
            let until = Instant::now() + Duration::from_micros((i * 7 + me as u64) % 80);
            while Instant::now() < until {
                if should_yield(me, i as usize) {
                    yield_now();
                }
            }
            let stopped = timer.stop();
            drop(timer);
            eventually(|| drops.load(SeqCst) == 1);
            assert_eq!(runs.load(SeqCst), usize::from(!stopped));
        }
    });
}

#[test]
fn destructors_of_functions_may_use_timers() {
    struct Restarts(Arc<AtomicUsize>);
    impl Drop for Restarts {
        fn drop(&mut self) {
            assert!(after_func(LONG, || ()).stop());
            self.0.fetch_add(1, SeqCst);
        }
    }
    both(|| {
        let drops = counter();
        for (wait, stop) in [(LONG, true), (Duration::ZERO, false), (MILLI, false)] {
            let held = Restarts(drops.clone());
            let timer = after_func(wait, move || assert!(held.0.load(SeqCst) < 9));
            if stop {
                timer.stop();
            }
        }
        eventually(|| drops.load(SeqCst) == 3);
    });
}

#[test]
fn each_reset_of_a_running_function_adds_a_run_unless_it_is_stopped() {
    both(|| {
        for stops in [false, true] {
            let (go_on, goes_on) = chan::<()>(0);
            let (runs, drops) = (counter(), counter());
            let mut f = counting(&runs, &drops);
            let timer = after_func(Duration::ZERO, move || {
                f();
                let _ = goes_on.recv();
            });
            eventually(|| runs.load(SeqCst) == 1);
            let mut expected = 1;
            for _ in 0..4 {
                expected += usize::from(!timer.reset(Duration::ZERO));
                sleep(3 * MILLI); // The run is due.
            }
            if stops {
                expected -= usize::from(timer.stop());
            }
            assert_eq!(runs.load(SeqCst), 1, "the first goes on");
            drop((timer, go_on));
            eventually(|| drops.load(SeqCst) == 1);
            assert_eq!(runs.load(SeqCst), expected, "stops: {stops}");
        }
    });
}

#[test]
fn a_function_can_drop_its_own_timer() {
    both(|| {
        let (give, given) = chan::<Timer>(1);
        let (runs, drops) = (counter(), counter());
        let mut f = counting(&runs, &drops);
        let timer = after_func(Duration::ZERO, move || {
            f();
            if let Ok(timer) = given.recv() {
                assert!(!timer.reset(MILLI)); // The function runs although the timer is dropped.
                drop(timer);
            }
        });
        give.send(timer).unwrap();
        drop(give);
        eventually(|| drops.load(SeqCst) == 1);
        assert_eq!(runs.load(SeqCst), 2);
    });
}
