//! `timeout`: work with a time limit. Also: no deadlock is reported while a timer is pending.

use gosched::context::{Context, ContextError};
use gosched::time::{Elapsed, now, sleep, timeout};
use gosched::{JoinHandle, chan, go, goexit, id, run};
use gosched_tests::children;
use gosched_tests::wait::{LIMIT, eventually};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

/// Runs `f` on an ordinary thread and in a goroutine.
fn both(f: impl Fn() + Send + Clone + 'static) {
    f();
    go(f).join().unwrap();
}

/// Counts its drop.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn work_that_ends_in_time_returns_its_result_at_once() {
    both(|| {
        let start = Instant::now();
        let caller = id();
        let result = timeout(LONG, move |ctx| {
            assert!(id().is_some() && id() != caller, "a goroutine of its own");
            assert_eq!(ctx.err(), None);
            let left = ctx.deadline().expect("it has one") - now();
            assert!(left <= LONG && left > LONG / 2, "{left:?}");
            String::from("done")
        });
        assert_eq!(result.as_deref(), Ok("done"));
        assert!(start.elapsed() < LIMIT, "not at the end of the time");
    });
}

#[test]
fn work_that_takes_too_long_continues_with_an_expired_context() {
    both(|| {
        let (tx, rx) = chan::<(Option<ContextError>, Instant)>(1);
        let start = now();
        let result = timeout(10 * MILLI, move |ctx| {
            let done = ctx.done().recv();
            tx.send((ctx.err(), now())).unwrap();
            assert!(done.is_err());
        });
        assert!(now() >= start + 10 * MILLI, "too soon");
        assert_eq!(result, Err(Elapsed), "its result came when the time was over");
        let (err, at) = rx.recv_timeout(LIMIT).unwrap();
        assert_eq!(err, Some(ContextError::DeadlineExceeded));
        assert!(at >= start + 10 * MILLI, "told too soon");
    });
}

#[test]
fn the_context_error_after_a_timeout_is_deadline_exceeded() {
    for i in 0..300 {
        let (give, given) = chan::<Context>(1);
        let (go_on, goes_on) = chan::<()>(0);
        let late = timeout(Duration::from_micros(i), move |ctx| {
            give.send(ctx).unwrap();
            goes_on.recv().is_ok()
        });
        assert_eq!(late, Err(Elapsed));
        let ctx = given.recv_timeout(LIMIT).unwrap();
        assert!(ctx.done().is_closed(), "over when the time is, not later");
        assert_eq!(ctx.err(), Some(ContextError::DeadlineExceeded));
        drop(go_on);
    }
}

#[test]
fn timeout_does_not_wait_for_work_that_ignores_its_context() {
    both(|| {
        let (go_on, goes_on) = chan::<()>(0);
        let (tx, rx) = chan::<u8>(1);
        let result = timeout(5 * MILLI, move |_ctx| {
            goes_on.recv().unwrap();
            tx.send(1).unwrap();
        });
        assert_eq!(result, Err(Elapsed));
        go_on.send(()).unwrap();
        assert_eq!(rx.recv_timeout(LIMIT), Ok(1), "it went on to its end");
    });
}

#[test]
fn timeouts_of_zero_and_of_the_maximum_duration_work() {
    both(|| {
        let (go_on, goes_on) = chan::<()>(0);
        let none = timeout(Duration::ZERO, move |_ctx| goes_on.recv().is_ok());
        assert_eq!(none, Err(Elapsed));
        drop(go_on);
        assert_eq!(timeout(Duration::MAX, |ctx| ctx.err()), Ok(None));
    });
}

#[test]
fn a_panic_or_goexit_of_the_work_panics_in_the_caller() {
    both(|| {
        let panics = catch_unwind(|| timeout(LONG, |_| -> u8 { resume_unwind(Box::new(77u32)) }));
        assert_eq!(panics.unwrap_err().downcast_ref::<u32>(), Some(&77));
        let exits = catch_unwind(|| timeout(LONG, |_| -> u8 { goexit() }));
        assert!(exits.is_err(), "there is no result");
        assert_eq!(timeout(LONG, |_| 1), Ok(1), "and all is well again");
    });
}

#[test]
fn a_panic_after_the_timeout_is_ignored() {
    both(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Counted(drops.clone());
        let (go_on, goes_on) = chan::<()>(0);
        let result = timeout(3 * MILLI, move |_ctx| {
            let _counted = counted;
            goes_on.recv().unwrap();
            resume_unwind(Box::new("too late"));
        });
        assert_eq!(result, Err::<(), _>(Elapsed));
        assert_eq!(drops.load(SeqCst), 0);
        go_on.send(()).unwrap();
        eventually(|| drops.load(SeqCst) == 1);
    });
}

#[test]
fn results_and_captures_are_dropped_once() {
    both(|| {
        let (results, captures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for (i, wait) in [LONG, MILLI, Duration::ZERO].into_iter().enumerate() {
            let (result, capture) = (Counted(results.clone()), Counted(captures.clone()));
            let got = timeout(wait, move |ctx| {
                let _capture = capture;
                if ctx.deadline().is_some_and(|at| at < now() + LONG / 2) {
                    let _ = ctx.done().recv();
                    sleep(3 * MILLI);
                }
                result
            });
            let kept = usize::from(got.is_ok());
            eventually(|| captures.load(SeqCst) == i + 1);
            eventually(|| results.load(SeqCst) == i + 1 - kept);
            drop(got);
            assert_eq!(results.load(SeqCst), i + 1);
        }
    });
}

#[test]
fn many_concurrent_timeouts_return_their_own_results() {
    let count = if cfg!(feature = "threads") { 40 } else { 2000 };
    let (go_on, goes_on) = chan::<()>(0);
    let all: Vec<JoinHandle<bool>> = (0..count)
        .map(|i| {
            let goes_on = goes_on.clone();
            go(move || match i % 2 {
                0 => timeout(LONG, move |_| i) == Ok(i),
                _ => {
                    let late = timeout(5 * MILLI, move |ctx| {
                        assert!(ctx.done().recv().is_err());
                        assert!(goes_on.recv().is_err());
                        i
                    });
                    late == Err(Elapsed)
                }
            })
        })
        .collect();
    let right = all.into_iter().map(|one| one.join().unwrap());
    assert_eq!(right.filter(|right| *right).count(), count);
    drop(go_on);
}

#[test]
fn timeouts_nest() {
    both(|| {
        let (go_on, goes_on) = chan::<()>(0);
        let result = timeout(LONG, |outer| {
            let inner = timeout(5 * MILLI, move |_ctx| goes_on.recv().is_ok());
            (inner, outer.err())
        });
        assert_eq!(result, Ok((Err(Elapsed), None)));
        drop(go_on);
    });
}

#[test]
fn elapsed_is_an_error_with_a_text() {
    let error: Box<dyn Error + Send + Sync> = Elapsed.into();
    assert_eq!(format!("{Elapsed:?}"), "Elapsed");
    assert!(error.to_string().len() > 5 && error.to_string() != "Elapsed", "{error}");
    assert!(catch_unwind(AssertUnwindSafe(|| run(|| timeout(MILLI, |_| ())))).is_ok());
}

/// Runs a program, which has no thread of the test harness. Returns its status, standard output and
/// standard error.
fn program(name: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_time_program")).arg(name).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), out, children::stderr(&output))
}

#[test]
fn a_sleep_ends_beside_a_goroutine_that_an_event_made_ready() {
    let (code, out, err) = program("sleep beside a reader");
    assert_eq!((code, out.as_str()), (Some(0), "it came\n"), "{err}");
}

#[test]
fn no_deadlock_is_reported_while_a_function_or_a_deadline_is_pending() {
    let names = ["function", "function without a timer", "function that was reset", "deadline"];
    for name in names.into_iter().chain(["function of a deadline", "work with a limit"]) {
        let (code, out, err) = program(name);
        assert_eq!((code, out.as_str()), (Some(0), "it came\n"), "{name}: {err}");
        assert!(!err.contains("fatal error"), "{name}: {err}");
    }
}

#[test]
fn a_deadlock_is_reported_when_no_function_and_no_deadline_is_pending() {
    if cfg!(feature = "threads") {
        return; // With goroutines as threads, deadlocks are not detected.
    }
    for name in ["function that was stopped", "nobody cancels", "deadline given up"] {
        let (code, out, err) = program(name);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{name}: {err}");
        assert!(err.starts_with("fatal error: all goroutines are asleep - deadlock!"), "{err}");
    }
}
