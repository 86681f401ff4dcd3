//! Goroutines and async code: `block_on`, and join handles as futures, under tokio and smol.

use gosched::time::after;
use gosched::{JoinHandle, block_on, chan, go, goexit, park, run, time, yield_now};
use gosched_async_tests::{CountingWaker, Task, for_each_executor, poll_once};
use gosched_tests::actors::{
    ACTOR_KINDS, Ledger, Token, in_goroutine_and_thread, join_all, kind_for,
};
use gosched_tests::children;
use gosched_tests::wait::{LIMIT, settle, until};
use std::collections::VecDeque;
use std::future::{Future, IntoFuture, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

/// Number of goroutines in a crowd; smaller if each goroutine is a thread.
const CROWD: usize = if cfg!(feature = "threads") { 300 } else { 10_000 };

/// A gate that futures wait at. Opening the gate calls the wakers of all polls so far; the gate
/// keeps the wakers.
#[derive(Clone, Default)]
struct Gate(Arc<(AtomicBool, Mutex<Vec<Waker>>, AtomicUsize)>);

impl Gate {
    fn pass(&self) -> impl Future<Output = ()> + Send + 'static {
        let gate = self.clone();
        poll_fn(move |context| {
            gate.0.2.fetch_add(1, SeqCst);
            gate.0.1.lock().unwrap().push(context.waker().clone());
            if gate.0.0.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    fn ring(&self) {
        let wakers = self.0.1.lock().unwrap().clone();
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    fn open(&self) {
        self.0.0.store(true, SeqCst);
        self.ring();
    }

    fn polls(&self) -> usize {
        self.0.2.load(SeqCst)
    }
}

#[test]
fn a_future_that_is_ready_is_polled_once() {
    in_goroutine_and_thread(|| {
        let polls = AtomicUsize::new(0);
        let value = block_on(poll_fn(|_| {
            polls.fetch_add(1, SeqCst);
            Poll::Ready(String::from("at once"))
        }));
        assert_eq!((value.as_str(), polls.load(SeqCst)), ("at once", 1));
        assert_eq!(block_on(async { ready(40).await + 2 }), 42);
    });
}

#[test]
fn goroutines_and_threads_may_call_a_waker_at_any_time() {
    for (waiter, waking) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for round in 0..60 {
            let gate = Gate::default();
            let waits = gate.clone();
            let waits = ACTOR_KINDS[waiter].start(move || block_on(waits.pass()));
            let opens = gate.clone();
            let opens = ACTOR_KINDS[waking].start(move || {
                if round % 3 == 0 {
                    let start = Instant::now();
                    while opens.polls() == 0 {
                        assert!(start.elapsed() < LIMIT, "never polled");
                        yield_now();
                    }
                }
                opens.open();
            });
            opens.join();
            waits.join();
            // A waker may be called after its wait has ended.
            gate.ring();
            assert!((1..=2).contains(&gate.polls()), "{}", gate.polls());
        }
    }
}

#[test]
fn a_future_that_wakes_itself_is_polled_again() {
    in_goroutine_and_thread(|| {
        let mut polls = 0;
        block_on(poll_fn(|context| {
            polls += 1;
            (0..polls % 3 + 1).for_each(|_| context.waker().wake_by_ref());
            if polls == 1001 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert_eq!(polls, 1001);
    });
}

#[test]
fn a_future_that_wakes_itself_lets_others_run() {
    run(|| {
        let others: Vec<_> = (0..50).map(|_| go(yield_now)).collect();
        let start = Instant::now();
        block_on(poll_fn(|context| {
            assert!(start.elapsed() < LIMIT, "the others never ran");
            context.waker().wake_by_ref();
            let have_ended = others.iter().all(JoinHandle::is_finished);
            if have_ended { Poll::Ready(()) } else { Poll::Pending }
        }));
    });
}

#[test]
fn spurious_wakes_neither_end_block_on_early_nor_disturb_later_waits() {
    let gate = Gate::default();
    let calm = Arc::new(AtomicBool::new(false));
    let ((tx, rx), (_nobody, empty)) = (chan::<u32>(0), chan::<u32>(0));
    let waits: Vec<_> = (0..8)
        .map(|i| {
            let (gate, rx, empty) = (gate.clone(), rx.clone(), empty.clone());
            kind_for(i).start(move || {
                block_on(gate.pass());
                assert!(gate.0.0.load(SeqCst));
                // The storm still calls this actor's old waker; the waits below must not end early.
                let start = Instant::now();
                time::sleep(10 * MILLI);
                assert!(start.elapsed() >= 10 * MILLI);
                assert!(empty.recv_timeout(5 * MILLI).is_err());
                block_on(after(5 * MILLI).recv_async()).unwrap();
                assert!(start.elapsed() >= 20 * MILLI);
                rx.recv().unwrap()
            })
        })
        .collect();
    until("all wait", || gate.0.1.lock().unwrap().len() >= 8);
    let storm: Vec<_> = (0..4)
        .map(|i| {
            let (gate, calm) = (gate.clone(), calm.clone());
            kind_for(i).start(move || {
                while !calm.load(SeqCst) {
                    let wakers: Vec<_> =
                        gate.0.1.lock().unwrap().iter().take(64).cloned().collect();
                    wakers.into_iter().for_each(Waker::wake);
                    time::sleep(MILLI / 10);
                }
            })
        })
        .collect();
    until("polled again", || gate.polls() > 24);
    gate.open();
    settle();
    assert!((0..8).all(|i| tx.send_timeout(i, LIMIT).is_ok()));
    let mut got = join_all(waits);
    calm.store(true, SeqCst);
    join_all(storm);
    got.sort_unstable();
    assert!(got.into_iter().eq(0..8));
}

#[test]
fn a_wake_of_the_outer_future_during_an_inner_block_on_is_kept() {
    in_goroutine_and_thread(|| {
        for wakes in [0, 1, 5] {
            let mut polls = 0;
            block_on(poll_fn(|context| {
                polls += 1;
                if polls == 2 {
                    return Poll::Ready(());
                }
                let outer = context.waker().clone();
                let (inner, opens) = (Gate::default(), Gate::default());
                let opened = opens.clone();
                let both = inner.clone();
                let helper = go(move || {
                    block_on(opened.pass());
                    (0..wakes).for_each(|_| outer.wake_by_ref());
                    both.open();
                    if wakes == 0 {
                        outer.wake();
                    }
                });
                opens.open();
                block_on(inner.pass());
                helper.join().unwrap();
                Poll::Pending
            }));
            assert_eq!(polls, 2);
        }
    });
}

#[test]
fn a_panic_in_a_future_leaves_block_on_and_drops_the_future_once() {
    in_goroutine_and_thread(|| {
        for polls_before in 0..3 {
            let ledger = Ledger::new(2);
            let (inside, mut polls) = (ledger.token(0), 0);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                block_on(poll_fn(move |context| -> Poll<Token> {
                    let inside = &inside;
                    assert!(polls < polls_before, "poll {polls} of {}", inside.number);
                    polls += 1;
                    context.waker().wake_by_ref();
                    Poll::Pending
                }))
            }));
            let payload = caught.unwrap_err();
            let text = payload.downcast_ref::<String>().unwrap();
            assert_eq!(*text, format!("poll {polls_before} of 0"));
            assert_eq!(ledger.drops(), [1, 0]);
            assert_eq!(block_on(async { ledger.token(1) }).number, 1);
            ledger.assert_each_dropped_once();
        }
    });
}

#[test]
fn goexit_inside_ends_the_goroutine_and_drops_the_future() {
    let ledger = Ledger::new(2);
    let (inside, outside) = (ledger.token(0), ledger.token(1));
    let ended = go(move || {
        let _outside = outside;
        block_on(async move {
            let _inside = inside;
            after(MILLI).recv_async().await.unwrap();
            goexit();
        });
    });
    assert!(ended.join().unwrap_err().is_goexit());
    ledger.assert_each_dropped_once();
    // A caught `goexit` resumes at the goroutine's next wait, here the wait in `block_on`.
    let caught = go(|| {
        assert!(catch_unwind(AssertUnwindSafe(|| block_on(async { goexit() }))).is_err());
        block_on(pending::<()>());
    });
    assert!(caught.join().unwrap_err().is_goexit());
}

#[test]
fn values_that_a_future_holds_or_returns_are_dropped_once() {
    in_goroutine_and_thread(|| {
        let ledger = Ledger::new(2);
        let (held, given) = (ledger.token(0), ledger.token(1));
        let gate = Gate::default();
        let opens = gate.clone();
        go(move || opens.open());
        let given = block_on(async move {
            let _held = held;
            gate.pass().await;
            given
        });
        assert_eq!(ledger.drops(), [1, 0]);
        drop(given);
        ledger.assert_each_dropped_once();
    });
}

#[test]
fn an_unpark_neither_ends_block_on_nor_is_lost() {
    let gate = Gate::default();
    let waits = gate.clone();
    let waits = go(move || {
        block_on(waits.pass());
        assert!(waits.0.0.load(SeqCst));
        park();
    });
    until("it waits", || gate.polls() == 1);
    waits.goroutine().unpark();
    settle();
    assert!(!waits.is_finished());
    gate.open();
    assert!(waits.join_timeout(LIMIT).is_ok(), "the unpark was lost");
}

#[test]
fn join_handles_are_awaited_under_any_executor() {
    for_each_executor(|run_all| {
        let tasks = (0..60u64).map(|i| -> Task {
            let handle = go(move || match i % 6 {
                0 => std::panic::resume_unwind(Box::new(i)),
                1 => goexit(),
                2 => i,
                3 => block_on(after(MILLI).recv_async()).map(|_| i).unwrap(),
                _ => block_on(go(move || i)).unwrap(),
            });
            Box::pin(async move {
                match (i % 6, handle.await) {
                    (0, Err(error)) => {
                        assert_eq!(*error.into_panic().downcast::<u64>().unwrap(), i)
                    }
                    (1, Err(error)) => assert!(error.is_goexit()),
                    (2.., Ok(value)) => assert_eq!(value, i),
                    (_, other) => panic!("{i}: {other:?}"),
                }
            })
        });
        run_all(tasks.collect());
    });
}

#[test]
fn a_join_future_wakes_only_its_last_waker_and_every_result_is_dropped_once() {
    for poll in [false, true] {
        let ledger = Ledger::new(2);
        let gate = Gate::default();
        let mut futures: Vec<_> = (0..2)
            .map(|i| {
                let (gate, token) = (gate.clone(), ledger.token(i));
                let end = move || {
                    block_on(gate.pass());
                    token
                };
                Box::pin(go(end).into_future())
            })
            .collect();
        let ((first, old), (last, new)) = (CountingWaker::new(), CountingWaker::new());
        if poll {
            assert!(futures.iter_mut().all(|future| poll_once(future, &old).is_pending()));
            assert!(futures.iter_mut().all(|future| poll_once(future, &new).is_pending()));
        }
        drop(futures.pop());
        gate.open();
        until("the forgotten one's result goes", || ledger.drops()[1] == 1);
        let mut future = futures.pop().unwrap();
        if poll {
            until("woken", || last.wake_count() > 0);
        }
        let mut value = None;
        until("the result is there", || {
            match poll_once(&mut future, &new) {
                Poll::Ready(result) => value = Some(result.unwrap()),
                Poll::Pending => assert!(!poll),
            }
            value.is_some()
        });
        assert_eq!(first.wake_count(), 0);
        assert!(catch_unwind(AssertUnwindSafe(|| poll_once(&mut future, &new))).is_err());
        drop((future, value));
        ledger.assert_each_dropped_once();
    }
}

#[test]
fn tokio_is_used_from_inside_goroutines() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let (to_tokio, mut in_tokio) = tokio::sync::mpsc::channel::<u64>(4);
    let (to_goroutines, in_goroutines) = chan::<u64>(0);
    let (results, mut all) = tokio::sync::mpsc::unbounded_channel();
    runtime.spawn(async move {
        while let Some(number) = in_tokio.recv().await {
            results.send(number * 2).unwrap();
            if number % 10 == 0 {
                tokio::time::sleep(MILLI).await;
            }
        }
    });
    for _ in 0..8 {
        let (to_tokio, in_goroutines) = (to_tokio.clone(), in_goroutines.clone());
        go(move || {
            for number in in_goroutines {
                block_on(to_tokio.send(number)).unwrap();
            }
        });
    }
    drop(to_tokio);
    let handle = runtime.handle().clone();
    let sum = go(move || {
        (0..500).for_each(|number| to_goroutines.send(number).unwrap());
        drop(to_goroutines);
        let mut sum = 0;
        while let Some(double) = block_on(all.recv()) {
            sum += double;
        }
        let spawned = handle.spawn(async move { sum });
        block_on(spawned).unwrap()
    });
    assert_eq!(runtime.block_on(sum.into_future()).unwrap(), 499 * 500);
}

#[test]
fn many_goroutines_wait_for_tokio() {
    let (senders, handles): (VecDeque<_>, Vec<_>) = (0..CROWD)
        .map(|number| {
            let (sender, receiver) = tokio::sync::oneshot::channel::<Token>();
            ((number, sender), go(move || block_on(receiver).map(|token| token.number)))
        })
        .unzip();
    let ledger = Ledger::new(CROWD);
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let (tokens, mut senders) = (ledger.clone(), senders);
    runtime.block_on(async move {
        while let (Some((number, sender)), back) = (senders.pop_front(), senders.pop_back()) {
            let token = tokens.token(number);
            tokio::spawn(async move { drop(sender.send(token)) });
            // The senders of the second half are dropped without sending.
            if let Some((number, _gone)) = back {
                drop(tokens.token(number));
            }
        }
        for (number, handle) in handles.into_iter().enumerate() {
            let result = handle.await.unwrap();
            assert_eq!(result.is_ok(), number < CROWD.div_ceil(2));
            assert!(result.is_err() || result == Ok(number));
        }
    });
    ledger.assert_each_dropped_once();
}

#[test]
fn a_wait_for_a_waker_an_async_receiver_or_a_timer_is_no_deadlock() {
    let scenarios = ["a waker", "tokio's time", "an async receiver", "a timer"];
    let runs = scenarios.map(|name| (name, std::thread::spawn(move || children::run(name))));
    for (scenario, run) in runs {
        let output = run.join().unwrap();
        assert!(output.status.success(), "{scenario}: {}", children::stderr(&output));
    }
}

#[test]
fn child() {
    let late = || std::thread::sleep(Duration::from_millis(700));
    match children::scenario().as_deref() {
        None => {}
        Some("a waker") => {
            let gate = Gate::default();
            let opens = gate.clone();
            let opener = std::thread::spawn(move || {
                late();
                opens.open();
            });
            run(move || block_on(gate.pass()));
            opener.join().unwrap();
        }
        Some("tokio's time") => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
            let sleeps = async { tokio::time::sleep(Duration::from_millis(700)).await };
            let sleeps = runtime.spawn(sleeps);
            run(move || block_on(sleeps)).unwrap();
        }
        Some("an async receiver") => {
            let (tx, rx) = chan::<u32>(0);
            let receiver = std::thread::spawn(move || {
                late();
                smol::block_on(rx.recv_async())
            });
            run(move || tx.send(4).unwrap());
            assert_eq!(receiver.join().unwrap(), Ok(4));
        }
        Some("a timer") => {
            run(|| block_on(pin!(after(Duration::from_millis(700)).recv_async())).map(drop))
                .unwrap();
        }
        Some(other) => panic!("{other}"),
    }
}
