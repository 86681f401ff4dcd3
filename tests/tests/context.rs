//! Contexts follow Go's rules: which contexts end, when, and with which cause. Most tests run in
//! goroutines and on ordinary threads.

use gosched::chan::{RecvTimeoutError, TryRecvError};
use gosched::context::{CancelGuard, Context, ContextError, background};
use gosched::{chan, go, goexit, id, run, select, time, yield_now};
use gosched_tests::wait::{LIMIT, eventually};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);
/// A timeout that does not expire while a test runs.
const LONG: Duration = Duration::from_secs(3600);

/// Runs `f` on an ordinary thread and in a goroutine.
fn both(f: impl Fn() + Send + Clone + 'static) {
    f();
    let inside = f.clone();
    go(inside).join().unwrap();
}

/// A value that counts the drops of itself and its clones.
#[derive(Clone, Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[derive(Debug, PartialEq)]
struct Reason(&'static str);

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Reason {}

fn is_open(ctx: &Context) -> bool {
    ctx.done().try_recv() == Err(TryRecvError::Empty)
        && !ctx.done().is_closed()
        && ctx.err().is_none()
        && ctx.cause().is_none()
}

fn is_over(ctx: &Context, why: ContextError) -> bool {
    ctx.done().try_recv() == Err(TryRecvError::Closed)
        && ctx.done().is_closed()
        && ctx.err() == Some(why)
        && ctx.cause().is_some()
}

/// Returns the text of the cause if it is a `Reason`, else the cause as a `ContextError`.
fn why(ctx: &Context) -> Result<&'static str, Option<ContextError>> {
    let cause = ctx.cause();
    let cause = cause.as_deref();
    match cause.and_then(|cause| cause.downcast_ref::<Reason>()) {
        Some(reason) => Ok(reason.0),
        None => Err(cause.and_then(|cause| cause.downcast_ref::<ContextError>()).copied()),
    }
}

#[test]
fn the_background_context_never_ends_and_carries_no_value() {
    both(|| {
        for ctx in [background(), Context::background(), background().clone()] {
            assert!(is_open(&ctx));
            assert_eq!((ctx.deadline(), ctx.value::<u32>()), (None, None));
            assert_eq!(ctx.done().recv_timeout(2 * MILLI), Err(RecvTimeoutError::Timeout));
        }
    });
}

#[test]
fn context_errors_have_the_texts_of_go() {
    assert_eq!(ContextError::Canceled, ContextError::Cancelled);
    assert_eq!(ContextError::Cancelled.to_string(), "context canceled");
    assert_eq!(ContextError::DeadlineExceeded.to_string(), "context deadline exceeded");
    assert_eq!(format!("{:?}", ContextError::Cancelled), "Cancelled");
    assert_eq!(format!("{:?}", ContextError::DeadlineExceeded), "DeadlineExceeded");
    let boxed: Box<dyn Error + Send + Sync> = ContextError::DeadlineExceeded.into();
    assert!(boxed.source().is_none());
    let (ctx, guard) = background().with_cancel();
    guard.cancel();
    assert_eq!(ctx.cause().unwrap().to_string(), "context canceled");
    let (ctx, _guard) = background().with_timeout(Duration::ZERO);
    assert_eq!(ctx.cause().unwrap().to_string(), "context deadline exceeded");
    assert!(format!("{ctx:?}").contains("Context"), "{ctx:?}");
}

#[test]
fn cancelling_ends_all_descendants_and_no_ancestor_or_sibling() {
    both(|| {
        let (parent, _parent) = background().with_cancel();
        let (one, cancel) = parent.with_cancel();
        let (beside, _beside) = parent.with_cancel();
        let carries = one.with_value(7u32);
        let (timed, _timed) = carries.with_timeout(LONG);
        let (last, _last) = timed.with_value("a").with_cancel();
        let all_below = [&one, &carries, &timed, &last];
        assert!(all_below.iter().all(|ctx| is_open(ctx)));
        cancel.cancel();
        // All descendants have ended when `cancel` returns, not some time later.
        assert!(all_below.iter().all(|ctx| is_over(ctx, ContextError::Cancelled)));
        assert!(is_open(&parent) && is_open(&beside));
        assert_eq!(last.value::<u32>(), Some(&7), "values stay");
        cancel.cancel();
        assert!(is_over(&one, ContextError::Cancelled), "twice is as once");
    });
}

#[test]
fn a_guard_cancels_when_dropped_and_not_when_detached() {
    both(|| {
        let (dropped, guard) = background().with_cancel();
        drop(guard);
        assert!(is_over(&dropped, ContextError::Cancelled));
        let (parent, cancel) = background().with_cancel();
        let (let_be, guard) = parent.with_cancel();
        guard.detach();
        assert!(is_open(&let_be));
        cancel.cancel();
        assert!(is_over(&let_be, ContextError::Cancelled), "still below its parent");
        let (timed, guard) = background().with_timeout(3 * MILLI);
        guard.detach();
        assert!(timed.done().recv_timeout(LIMIT) == Err(RecvTimeoutError::Closed));
        assert_eq!(timed.err(), Some(ContextError::DeadlineExceeded));
        // `goexit` drops the guard.
        let (ctx, guard) = background().with_cancel();
        let ends = go(move || {
            let _guard = guard;
            goexit();
        });
        assert!(ends.join().unwrap_err().is_goexit());
        assert!(is_over(&ctx, ContextError::Cancelled));
    });
}

#[test]
fn clones_are_the_same_context() {
    let (ctx, guard) = background().with_value(1u8).with_cancel();
    let clone = ctx.clone();
    assert!(clone.done().same_channel(ctx.done()));
    drop(ctx);
    assert!(is_open(&clone), "a clone that goes ends nothing");
    guard.cancel();
    assert!(is_over(&clone, ContextError::Cancelled));
    assert_eq!(clone.value::<u8>(), Some(&1));
}

#[test]
fn a_child_of_an_ended_context_has_ended_from_the_start() {
    both(|| {
        let (parent, guard) = background().with_cancel();
        guard.cancel_cause(Reason("because"));
        let (child, _child) = parent.with_cancel();
        let (timed, _timed) = parent.with_timeout(LONG);
        let (past, _past) = parent.with_deadline(time::now() - MILLI);
        let carries = parent.with_value(1u8);
        for ctx in [&child, &timed, &past, &carries] {
            assert!(is_over(ctx, ContextError::Cancelled), "{ctx:?}");
            assert_eq!(why(ctx), Ok("because"));
        }
    });
}

#[test]
fn a_deadline_ends_the_context_and_its_descendants_on_time() {
    both(|| {
        let start = time::now();
        let (ctx, _guard) = background().with_deadline(start + 20 * MILLI);
        assert_eq!(ctx.deadline(), Some(start + 20 * MILLI));
        let (child, _child) = ctx.with_value(1u8).with_cancel();
        let (later, _later) = ctx.with_deadline(start + LONG);
        let (sooner, _sooner) = ctx.with_deadline(start + 10 * MILLI);
        assert_eq!(child.deadline(), ctx.deadline());
        assert_eq!(later.deadline(), ctx.deadline(), "no later than its parent's");
        assert_eq!(sooner.deadline(), Some(start + 10 * MILLI));
        assert!(sooner.done().recv().is_err());
        assert!(time::now() >= start + 10 * MILLI, "too soon");
        for ctx in [&ctx, &child, &later] {
            assert!(ctx.done().recv().is_err());
            assert!(time::now() >= start + 20 * MILLI, "too soon");
            assert!(is_over(ctx, ContextError::DeadlineExceeded));
            assert_eq!(why(ctx), Err(Some(ContextError::DeadlineExceeded)));
            assert_eq!(ctx.deadline(), Some(start + 20 * MILLI), "it stays");
        }
        assert!(is_over(&sooner, ContextError::DeadlineExceeded));
    });
}

#[test]
fn a_past_deadline_or_a_zero_timeout_ends_the_context_at_once() {
    both(|| {
        let (past, _past) = background().with_deadline(time::now() - MILLI);
        let (none, _none) = background().with_timeout(Duration::ZERO);
        for ctx in [&past, &none] {
            assert!(is_over(ctx, ContextError::DeadlineExceeded));
            assert!(ctx.deadline().is_some());
        }
        let (ever, guard) = background().with_timeout(Duration::MAX);
        assert!(is_open(&ever));
        guard.cancel();
        assert!(is_over(&ever, ContextError::Cancelled));
    });
}

#[test]
fn the_earlier_of_cancel_and_deadline_determines_the_error() {
    both(|| {
        let (ctx, guard) = background().with_timeout(5 * MILLI);
        guard.cancel();
        let why_now = ctx.err();
        time::sleep(10 * MILLI);
        assert_eq!(ctx.err(), why_now, "what is over stays as it is");
        let (ctx, guard) = background().with_timeout(LONG);
        guard.cancel();
        assert!(is_over(&ctx, ContextError::Cancelled));
        let (ctx, guard) = background().with_timeout(MILLI);
        assert!(ctx.done().recv().is_err());
        guard.cancel_cause(Reason("too late"));
        drop(guard);
        assert_eq!(why(&ctx), Err(Some(ContextError::DeadlineExceeded)));
    });
}

#[test]
fn the_first_cause_from_the_parent_or_the_context_itself_is_kept() {
    /// Cancels the parent (`p`) and the child (`c`) in the given order; a capital letter cancels
    /// with a cause. Returns both causes.
    fn order(order: &str) -> [Result<&'static str, Option<ContextError>>; 2] {
        let (parent, of_parent) = background().with_cancel();
        let (child, of_child) = parent.with_cancel();
        for step in order.chars() {
            match step {
                'p' => of_parent.cancel(),
                'P' => of_parent.cancel_cause(Reason("parent")),
                'c' => of_child.cancel(),
                _ => of_child.cancel_cause(Reason("child")),
            }
        }
        drop((of_parent, of_child));
        assert_eq!(parent.err(), Some(ContextError::Cancelled));
        assert_eq!(child.err(), Some(ContextError::Cancelled));
        [why(&parent), why(&child)]
    }
    let plain = Err(Some(ContextError::Cancelled));
    assert_eq!(order(""), [plain, plain]);
    assert_eq!(order("P"), [Ok("parent"), Ok("parent")]);
    assert_eq!(order("C"), [plain, Ok("child")]);
    assert_eq!(order("PC"), [Ok("parent"), Ok("parent")]);
    assert_eq!(order("CP"), [Ok("parent"), Ok("child")]);
    assert_eq!(order("Pc"), [Ok("parent"), Ok("parent")]);
    assert_eq!(order("cP"), [Ok("parent"), plain]);
    assert_eq!(order("pC"), [plain, plain]);
    assert_eq!(order("Cp"), [plain, Ok("child")]);
    assert_eq!(order("pP"), [plain, plain]);
    let (ctx, guard) = background().with_cancel();
    guard.cancel_cause("only a text");
    assert_eq!(ctx.cause().unwrap().to_string(), "only a text");
    assert_eq!(ctx.err().unwrap().to_string(), "context canceled");
}

#[test]
fn causes_and_deadlines_combine_as_in_go() {
    let (parent, guard) = background().with_cancel();
    let (over, _over) = parent.with_timeout(Duration::ZERO);
    let (open, _open) = parent.with_timeout(LONG);
    guard.cancel_cause(Reason("finished early"));
    assert_eq!(over.err(), Some(ContextError::DeadlineExceeded));
    assert_eq!(why(&over), Err(Some(ContextError::DeadlineExceeded)));
    assert_eq!(open.err(), Some(ContextError::Cancelled));
    assert_eq!(why(&open), Ok("finished early"));
}

#[test]
fn values_are_found_by_type_and_the_nearest_value_wins() {
    #[derive(Debug, PartialEq)]
    struct Name(String);
    both(|| {
        let first = background().with_value(1u32).with_value(Name("a".to_owned()));
        let (second, _guard) = first.with_cancel();
        let third = second.with_value(2u32);
        let (fourth, _fourth) = third.with_timeout(LONG);
        assert_eq!(first.value::<u32>(), Some(&1));
        assert_eq!(second.value::<u32>(), Some(&1));
        assert_eq!(third.value::<u32>(), Some(&2), "it hides the other");
        assert_eq!(fourth.value::<u32>(), Some(&2));
        assert_eq!(fourth.value::<Name>(), Some(&Name("a".to_owned())));
        assert_eq!(fourth.value::<i32>(), None, "another type");
        assert_eq!(background().value::<u32>(), None);
        // `value` returns a reference to the stored value, not to a copy.
        let shared = first.value::<Name>().unwrap() as *const Name;
        assert_eq!(fourth.value::<Name>().unwrap() as *const Name, shared);
    });
}

#[test]
fn without_cancel_keeps_only_the_values() {
    both(|| {
        let (parent, guard) = background().with_value(5u32).with_timeout(LONG);
        let free = parent.without_cancel();
        assert_eq!((free.deadline(), free.value::<u32>()), (None, Some(&5)));
        let (below, own) = free.with_cancel();
        guard.cancel_cause(Reason("over"));
        assert!(is_open(&free) && is_open(&below));
        let late = parent.without_cancel();
        assert!(is_open(&late), "made from one that is over");
        own.cancel();
        assert!(is_over(&below, ContextError::Cancelled) && is_open(&free));
        assert_eq!(free.with_value(1u8).value::<u32>(), Some(&5));
    });
}

#[test]
fn the_done_channel_cannot_be_closed_by_users() {
    both(|| {
        let (ctx, guard) = background().with_cancel();
        let waits = go({
            let ctx = ctx.clone();
            move || ctx.done().recv_timeout(20 * MILLI)
        });
        let (waits_still, ends) = (ctx.done().clone(), background().done().clone());
        for done in [ctx.done(), background().done()] {
            if let Ok(closed) = catch_unwind(AssertUnwindSafe(|| done.close())) {
                assert!(!closed, "it says that it was closed");
            }
        }
        drop((waits_still, ends));
        assert!(is_open(&ctx) && is_open(&background()));
        assert_eq!(waits.join().unwrap(), Err(RecvTimeoutError::Timeout));
        guard.cancel();
        assert!(is_over(&ctx, ContextError::Cancelled));
        assert_eq!((ctx.done().len(), ctx.done().cap()), (0, 0));
    });
}

#[test]
fn a_done_channel_outlives_its_context_and_still_reports_its_end() {
    both(|| {
        let (parent, guard) = background().with_cancel();
        let (child, own) = parent.with_cancel();
        own.detach();
        let done = child.done().clone();
        drop(child);
        assert_eq!(done.try_recv(), Err(TryRecvError::Empty), "nothing was cancelled");
        assert_eq!(done.recv_timeout(2 * MILLI), Err(RecvTimeoutError::Timeout));
        guard.cancel();
        assert_eq!(done.recv_timeout(LIMIT), Err(RecvTimeoutError::Closed));
        let (timed, own) = background().with_timeout(5 * MILLI);
        own.detach();
        let done = timed.done().clone();
        drop(timed);
        assert_eq!(done.recv_timeout(LIMIT), Err(RecvTimeoutError::Closed));
        let (ctx, guard) = background().with_cancel();
        let done = ctx.done().clone();
        drop(ctx);
        assert_eq!(done.try_recv(), Err(TryRecvError::Empty));
        guard.cancel();
        assert_eq!(done.try_recv(), Err(TryRecvError::Closed));
    });
}

#[test]
fn cancelling_wakes_every_kind_of_wait() {
    let (ctx, guard) = background().with_cancel();
    let (ready, waiting) = chan::<()>(8);
    let mut goroutines = Vec::new();
    let mut threads = Vec::new();
    for way in 0..8 {
        let (ctx, ready) = (ctx.clone(), ready.clone());
        let waits = move || {
            ready.send(()).unwrap();
            let (_tx, rx) = chan::<u8>(0);
            match way / 2 {
                0 => assert!(ctx.done().recv().is_err()),
                1 => select! {
                    recv(rx) -> _ => unreachable!("nobody sends"),
                    recv(ctx.done()) -> done => assert!(done.is_err()),
                },
                2 => assert!(gosched::block_on(ctx.done().recv_async()).is_err()),
                _ => assert_eq!(ctx.done().iter().count(), 0),
            }
            ctx.err()
        };
        match way % 2 {
            0 => goroutines.push(go(waits)),
            _ => threads.push(std::thread::spawn(waits)),
        }
    }
    waiting.iter().take(8).for_each(drop);
    time::sleep(5 * MILLI);
    guard.cancel();
    let told = goroutines.into_iter().map(|goroutine| goroutine.join().unwrap());
    let told = told.chain(threads.into_iter().map(|thread| thread.join().unwrap()));
    assert_eq!(told.filter(|err| *err == Some(ContextError::Cancelled)).count(), 8);
}

#[test]
fn err_and_done_never_disagree() {
    both(|| {
        for i in 0..200 {
            let (ctx, guard) = background().with_cancel();
            let (child, _child) = ctx.with_value(i).with_cancel();
            let cancels = go(move || guard.cancel_cause(Reason("raced")));
            let watched = if i % 2 == 0 { &ctx } else { &child };
            match i % 4 / 2 {
                0 => {
                    while watched.err().is_none() {
                        yield_now();
                    }
                    assert!(watched.done().is_closed(), "err is there, done is open");
                }
                _ => {
                    assert!(watched.done().recv().is_err());
                    assert_eq!(watched.err(), Some(ContextError::Cancelled));
                }
            }
            assert_eq!(why(watched), Ok("raced"));
            cancels.join().unwrap();
        }
    });
}

#[test]
fn an_after_func_runs_once_in_its_own_goroutine_when_the_context_ends() {
    both(|| {
        let (ctx, guard) = background().with_cancel();
        let (child, _child) = ctx.with_value(1u8).with_cancel();
        let (tx, rx) = chan::<Option<gosched::GoId>>(9);
        let (first, second) = (tx.clone(), tx.clone());
        let stop = ctx.after_func(move || first.send(id()).unwrap());
        drop(child.after_func(move || second.send(id()).unwrap())); // the drop changes nothing
        assert_eq!(rx.recv_timeout(3 * MILLI), Err(RecvTimeoutError::Timeout), "before its time");
        guard.cancel();
        let (one, other) = (rx.recv().unwrap(), rx.recv().unwrap());
        assert!(one.is_some() && other.is_some() && one != other);
        assert!(one != id() && other != id());
        assert!(!stop.stop() && !stop.stop(), "it was started");
        drop(ctx.after_func(move || tx.send(id()).unwrap()));
        assert!(rx.recv_timeout(LIMIT).unwrap().is_some(), "over already: at once");
        assert_eq!(rx.recv(), Err(gosched::chan::RecvError), "each once, and its closure is gone");
    });
}

#[test]
fn an_after_func_runs_even_when_all_handles_are_dropped() {
    both(|| {
        let (tx, rx) = chan::<u8>(9);
        let (parent, cancels) = background().with_cancel();
        {
            let (timed, guard) = background().with_timeout(5 * MILLI);
            let (child, of_child) = parent.with_cancel();
            let (at_time, at_cancel) = (tx.clone(), tx);
            drop(timed.after_func(move || at_time.send(1).unwrap()));
            drop(child.after_func(move || at_cancel.send(2).unwrap()));
            guard.detach();
            of_child.detach();
        }
        assert_eq!(rx.recv_timeout(LIMIT), Ok(1));
        cancels.cancel();
        assert_eq!(rx.recv_timeout(LIMIT), Ok(2));
    });
}

#[test]
fn a_stopped_after_func_never_runs_and_is_dropped() {
    both(|| {
        let (cancelled, guard) = background().with_cancel();
        for ctx in [cancelled, background(), background().with_value(1u8).without_cancel()] {
            let (ran, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (runs, counted) = (ran.clone(), Counted(drops.clone()));
            let stop = ctx.after_func(move || {
                let _counted = counted;
                runs.fetch_add(1, SeqCst);
            });
            assert!(stop.stop());
            assert!(!stop.stop(), "once only");
            guard.cancel();
            eventually(|| drops.load(SeqCst) == 1);
            time::sleep(2 * MILLI);
            assert_eq!((ran.load(SeqCst), drops.load(SeqCst)), (0, 1));
        }
    });
}

#[test]
fn cancelling_does_not_wait_for_after_funcs() {
    run(|| {
        let (ctx, guard) = background().with_cancel();
        let (tx, rx) = chan::<()>(0);
        let (told, tells) = chan::<u8>(1);
        let stop = ctx.after_func(move || {
            rx.recv().unwrap();
            told.send(1).unwrap();
        });
        guard.cancel();
        assert!(!stop.stop(), "it goes on; this does not wait for its end");
        tx.send(()).unwrap();
        assert_eq!(tells.recv(), Ok(1));
    });
}

#[test]
fn after_funcs_that_panic_or_exit_do_not_disturb_other_after_funcs() {
    both(|| {
        let (ctx, guard) = background().with_cancel();
        let (tx, rx) = chan::<u32>(100);
        let drops = Arc::new(AtomicUsize::new(0));
        let stops: Vec<_> = (0..30)
            .map(|i| {
                let (tx, counted) = (tx.clone(), Counted(drops.clone()));
                ctx.after_func(move || {
                    let _counted = counted;
                    tx.send(i).unwrap();
                    match i % 3 {
                        0 => std::panic::resume_unwind(Box::new("in a function")),
                        1 => goexit(),
                        _ => (),
                    }
                })
            })
            .collect();
        drop(tx);
        guard.cancel();
        let mut ran: Vec<u32> = rx.iter().collect();
        ran.sort_unstable();
        assert_eq!(ran, (0..30).collect::<Vec<_>>());
        assert!(stops.iter().all(|stop| !stop.stop()));
        eventually(|| drops.load(SeqCst) == 30);
        assert!(is_over(&ctx, ContextError::Cancelled));
    });
}

#[test]
fn an_after_func_may_use_its_own_context() {
    both(|| {
        let (ctx, guard) = background().with_cancel();
        let guard = Arc::new(guard);
        let (give, given) = chan::<gosched::context::StopFunc>(1);
        let (tx, rx) = chan::<bool>(9);
        let (inside, cancels) = (ctx.clone(), guard.clone());
        let stop = ctx.after_func(move || {
            cancels.cancel();
            let own = given.recv().unwrap();
            tx.send(own.stop()).unwrap();
            let (child, _child) = inside.with_cancel();
            let again = tx.clone();
            let _ = child.after_func(move || again.send(false).unwrap());
            tx.send(inside.err().is_none() || child.err().is_none()).unwrap();
        });
        give.send(stop).unwrap();
        guard.cancel();
        assert_eq!(rx.iter().collect::<Vec<_>>(), [false; 3]);
    });
}

#[test]
fn a_guard_in_a_thread_local_cancels_when_its_thread_or_goroutine_ends() {
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<CancelGuard>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let (tx, rx) = chan::<()>(2);
    let keeps = |guard: CancelGuard| move || KEPT.with_borrow_mut(|kept| kept.push(guard));
    let (one, guard) = background().with_cancel();
    let (first, second) = (tx.clone(), tx);
    let _ = one.after_func(move || first.send(()).unwrap());
    std::thread::spawn(keeps(guard)).join().unwrap();
    let (two, guard) = background().with_timeout(LONG);
    let _ = two.after_func(move || second.send(()).unwrap());
    go(keeps(guard)).join().unwrap();
    eventually(|| is_over(&one, ContextError::Cancelled) && is_over(&two, ContextError::Cancelled));
    assert_eq!(rx.iter().count(), 2, "and the functions ran");
}
