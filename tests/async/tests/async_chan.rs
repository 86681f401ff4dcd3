//! Channels in async code: `recv_async` under tokio and smol, with goroutines, threads and timers
//! as senders.

use gosched::chan::{Receiver, RecvError, SendTimeoutError, TryRecvError, TrySendError, never};
use gosched::time::{Ticker, Timer, after};
use gosched::{block_on, chan, context, go, select};
use gosched_async_tests::{CountingWaker, Task, for_each_executor, poll_once};
use gosched_tests::actors::{Ledger, Token, in_goroutine_and_thread, join_all, kind_for};
use gosched_tests::wait::{LIMIT, eventually, until};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

/// Returns a generator of pseudo-random numbers.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 + Send {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    }
}

#[test]
fn every_value_is_received_once_by_a_task_a_goroutine_or_a_thread() {
    const EACH: usize = 300;
    for_each_executor(|run_all| {
        for (cap, tasks, plain) in
            [(0, 8, 0), (1, 8, 0), (7, 8, 0), (0, 4, 4), (1, 4, 4), (64, 1, 1)]
        {
            let ledger = Ledger::new(8 * EACH);
            let (tx, rx) = chan::<Token>(cap);
            for sender in 0..8 {
                let (tx, ledger) = (tx.clone(), ledger.clone());
                drop(kind_for(sender).start(move || {
                    (0..EACH).for_each(|i| tx.send(ledger.token(sender * EACH + i)).unwrap());
                }));
            }
            drop(tx);
            let plain: Vec<_> = (0..plain)
                .map(|i| {
                    let rx = rx.clone();
                    kind_for(i).start(move || rx.iter().count())
                })
                .collect();
            let count = Arc::new(AtomicUsize::new(0));
            let tasks = (0..tasks).map(|_| -> Task {
                let (rx, count) = (rx.clone(), count.clone());
                Box::pin(async move {
                    let mut last = [None; 8];
                    while let Ok(token) = rx.recv_async().await {
                        let last = &mut last[token.number / EACH];
                        assert!(*last < Some(token.number), "one sender's come in order");
                        *last = Some(token.number);
                        count.fetch_add(1, SeqCst);
                    }
                })
            });
            run_all(tasks.collect());
            let received = join_all(plain).iter().sum::<usize>() + count.load(SeqCst);
            assert_eq!(received, 8 * EACH);
            ledger.assert_each_dropped_once();
        }
    });
}

#[test]
fn async_tasks_receive_every_zero_sized_value() {
    for_each_executor(|run_all| {
        for cap in [0, 3] {
            let (tx, rx) = chan::<()>(cap);
            for _ in 0..4 {
                let tx = tx.clone();
                go(move || (0..250).for_each(|_| tx.send(()).unwrap()));
            }
            drop(tx);
            let count = Arc::new(AtomicUsize::new(0));
            let tasks = (0..5).map(|_| -> Task {
                let (rx, count) = (rx.clone(), count.clone());
                Box::pin(async move {
                    while rx.recv_async().await.is_ok() {
                        count.fetch_add(1, SeqCst);
                    }
                })
            });
            run_all(tasks.collect());
            assert_eq!(count.load(SeqCst), 1000);
        }
    });
}

/// Receives once, or drops the future at random: before the first poll, after a pending poll, or
/// after a wake-up and before the next poll.
async fn recv_or_give_up(
    rx: &Receiver<Token>,
    random: &mut impl FnMut(u64) -> u64,
) -> Option<Result<Token, RecvError>> {
    let mut future = Box::pin(rx.recv_async());
    let (mut patience, at_once) = (random(4), random(3) == 0);
    poll_fn(move |context| {
        if patience == 0 {
            return Poll::Ready(None);
        }
        patience -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if at_once => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[test]
fn a_dropped_receive_future_loses_no_value_and_no_wake_up() {
    const VALUES: usize = 200;
    for_each_executor(|run_all| {
        for seed in 0..12 {
            let (tx, rx) = chan::<Token>([0, 1, 5][seed % 3]);
            let ledger = Ledger::new(VALUES);
            let senders = (0..4).map(|i| {
                let (tx, ledger) = (tx.clone(), ledger.clone());
                kind_for(i).start(move || {
                    let mut random = numbers((seed * 4 + i) as u64 + 1);
                    for number in (i..VALUES).step_by(4) {
                        let mut token = Some(ledger.token(number));
                        while let Some(value) = token.take() {
                            let patience = [MILLI / 5, LIMIT][random(2) as usize];
                            match tx.send_timeout(value, patience) {
                                Err(SendTimeoutError::Timeout(back)) => token = Some(back),
                                sent => assert!(sent.is_ok(), "closed too soon"),
                            }
                        }
                    }
                })
            });
            let senders: Vec<_> = senders.collect();
            // The task that receives the last value closes the channel. Task 0 never gives up, so
            // only wake-ups end its waits.
            let left = Arc::new(AtomicUsize::new(VALUES));
            let tasks = (0..12).map(|i| -> Task {
                let (rx, left) = (rx.clone(), left.clone());
                Box::pin(async move {
                    let mut random = numbers((seed * 100 + i) as u64 + 77);
                    let mut tries = 0;
                    while i == 0 || tries < 40 {
                        tries += 1;
                        let result = match i {
                            0 => Some(rx.recv_async().await),
                            _ => recv_or_give_up(&rx, &mut random).await,
                        };
                        match result {
                            Some(Ok(_)) if left.fetch_sub(1, SeqCst) == 1 => drop(rx.close()),
                            Some(Err(_)) => return,
                            _ => {}
                        }
                    }
                })
            });
            run_all(tasks.collect());
            join_all(senders);
            assert_eq!(left.load(SeqCst), 0);
            ledger.assert_each_dropped_once();
        }
    });
}

#[test]
fn a_woken_future_that_is_dropped_passes_its_wake_up_to_the_next() {
    for cap in [0, 1, 3] {
        let (tx, rx) = chan::<u32>(cap);
        let (bells, wakers): (Vec<_>, Vec<_>) = (0..6).map(|_| CountingWaker::new()).unzip();
        let mut futures: Vec<_> = wakers
            .iter()
            .map(|waker| {
                let mut future = Box::pin(rx.recv_async());
                assert!(poll_once(&mut future, waker).is_pending());
                Some(future)
            })
            .collect();
        let sent = kind_for(cap).start(move || tx.send(9).unwrap());
        // Five of the six futures are dropped, each after its wake-up and before another poll.
        for _ in 0..5 {
            let woken = || (0..6).find(|&i| futures[i].is_some() && bells[i].wake_count() > 0);
            until("somebody is woken", || woken().is_some());
            let woken = woken().unwrap();
            futures[woken] = None;
        }
        let last = (0..6).find(|&i| futures[i].is_some()).unwrap();
        until("the last is woken", || bells[last].wake_count() > 0);
        let received = poll_once(futures[last].as_mut().unwrap(), &wakers[last]);
        assert_eq!(received, Poll::Ready(Ok(9)), "it has the value");
        sent.join();
        assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
    }
}

#[test]
fn a_future_woken_for_a_sender_that_timed_out_is_woken_for_the_next_sender() {
    let (tx, rx) = chan::<u32>(0);
    let (bell, waker) = CountingWaker::new();
    let mut future = Box::pin(rx.recv_async());
    assert!(poll_once(&mut future, &waker).is_pending());
    for round in 1..20 {
        let before = bell.wake_count();
        // A sender that times out before it waits wakes no receiver: retry.
        until("told of a sender", || {
            assert_eq!(tx.send_timeout(round, MILLI), Err(SendTimeoutError::Timeout(round)));
            bell.wake_count() > before
        });
        assert!(poll_once(&mut future, &waker).is_pending());
    }
    // Two senders wake two waiting futures.
    let (other_bell, other_waker) = CountingWaker::new();
    let mut other = Box::pin(rx.recv_async());
    assert!(poll_once(&mut other, &other_waker).is_pending());
    let before = bell.wake_count();
    let senders: Vec<_> = [1, 2]
        .map(|i| {
            let tx = tx.clone();
            kind_for(i as usize).start(move || tx.send(i).unwrap())
        })
        .into();
    until("both are told", || bell.wake_count() > before && other_bell.wake_count() > 0);
    let mut got = [poll_once(&mut future, &waker), poll_once(&mut other, &other_waker)];
    got.sort_by_key(|got| *got == Poll::Ready(Ok(2)));
    assert_eq!(got, [1, 2].map(|i| Poll::Ready(Ok(i))));
    join_all(senders);
}

#[test]
fn a_receive_future_wakes_only_its_last_waker() {
    for cap in [0, 1] {
        let (tx, rx) = chan::<u32>(cap);
        let ((first, old), (last, new)) = (CountingWaker::new(), CountingWaker::new());
        let mut future = Box::pin(rx.recv_async());
        assert!(poll_once(&mut future, &old).is_pending());
        assert!(poll_once(&mut future, &new).is_pending());
        let sent = kind_for(cap).start(move || tx.send(5));
        until("woken", || last.wake_count() > 0);
        assert_eq!(first.wake_count(), 0);
        assert_eq!(poll_once(&mut future, &new), Poll::Ready(Ok(5)));
        sent.join().unwrap();
        // The channel keeps no waker of a future that is gone.
        drop(future);
        drop((old, new));
        let alone = |bell| Arc::strong_count(bell) == 1;
        until("the wakers are gone", || alone(&first) && alone(&last));
    }
}

#[test]
fn an_async_receiver_is_met_by_send_and_not_by_try_send() {
    let (tx, rx) = chan::<u32>(0);
    let (bell, waker) = CountingWaker::new();
    let mut future = Box::pin(rx.recv_async());
    assert!(poll_once(&mut future, &waker).is_pending());
    assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
    let sent = select! {
        send(tx, 2) -> _ => true,
        default => false,
    };
    assert!(!sent);
    assert_eq!((tx.len(), rx.len()), (0, 0));
    let sends = go(move || tx.send(3));
    until("told", || bell.wake_count() > 0);
    assert_eq!(poll_once(&mut future, &waker), Poll::Ready(Ok(3)), "it waits to be met");
    sends.join().unwrap().unwrap();
}

#[test]
fn select_sends_to_async_receivers() {
    const VALUES: usize = 400;
    for_each_executor(|run_all| {
        let received = Ledger::new(VALUES);
        let ((a, in_a), (b, in_b)) = (chan::<usize>(0), chan::<usize>(1));
        let (_none, stop) = chan::<()>(0);
        let senders: Vec<_> = (0..4)
            .map(|i| {
                let (a, b, stop) = (a.clone(), b.clone(), stop.clone());
                kind_for(i).start(move || {
                    for number in (i..VALUES).step_by(4) {
                        select! {
                            send(a, number) -> sent => sent.unwrap(),
                            send(b, number) -> sent => sent.unwrap(),
                            recv(stop) -> _ => panic!("nobody says so"),
                        }
                    }
                })
            })
            .collect();
        drop((a, b));
        let tasks = (0..6).map(|i| -> Task {
            let (rx, received) = ([&in_a, &in_b][i % 2].clone(), received.clone());
            Box::pin(async move {
                while let Ok(number) = rx.recv_async().await {
                    drop(received.token(number));
                }
            })
        });
        run_all(tasks.collect());
        join_all(senders);
        received.assert_each_dropped_once();
    });
}

#[test]
fn close_wakes_all_async_receivers_and_buffered_values_come_first() {
    for by_drop in [false, true] {
        let (tx, rx) = chan::<u32>(2);
        let (bells, wakers): (Vec<_>, Vec<_>) = (0..5).map(|_| CountingWaker::new()).unzip();
        let mut futures: Vec<_> = (0..5).map(|_| Box::pin(rx.recv_async())).collect();
        for (future, waker) in futures.iter_mut().zip(&wakers) {
            assert!(poll_once(future, waker).is_pending());
        }
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        if by_drop {
            drop(tx);
        } else {
            assert!(tx.close());
        }
        until("all are told", || bells.iter().all(|bell| bell.wake_count() > 0));
        let looks = futures.iter_mut().zip(&wakers).map(|(future, waker)| poll_once(future, waker));
        let seen: Vec<_> = looks.collect();
        let expected = [Ok(1), Ok(2), Err(RecvError), Err(RecvError), Err(RecvError)];
        assert_eq!(seen, expected.map(Poll::Ready));
    }
    let (ctx, guard) = context::background().with_cancel();
    go(move || guard.cancel());
    assert_eq!(smol::block_on(ctx.done().recv_async()), Err(RecvError));
    let (bell, waker) = CountingWaker::new();
    let nothing = never::<u32>();
    let mut future = Box::pin(nothing.recv_async());
    assert!(poll_once(&mut future, &waker).is_pending());
    drop(future);
    assert_eq!(bell.wake_count(), 0);
}

#[test]
fn timers_are_awaited() {
    for_each_executor(|run_all| {
        let tasks = (0..20).map(|i| -> Task {
            Box::pin(async move {
                let start = Instant::now();
                after(i * MILLI).recv_async().await.unwrap();
                assert!(start.elapsed() >= i * MILLI);
            })
        });
        run_all(tasks.collect());
    });
    let start = Instant::now();
    let ticker = Ticker::new(2 * MILLI);
    assert!((0..5).all(|_| smol::block_on(ticker.chan().recv_async()).is_ok()));
    assert!(start.elapsed() >= 9 * MILLI, "five ticks");
    // A timer that is stopped or reset discards its earlier tick, even if the tick has woken a
    // receiver.
    let timer = Timer::new(LIMIT);
    let (bell, waker) = CountingWaker::new();
    let mut future = Box::pin(timer.chan().recv_async());
    assert!(poll_once(&mut future, &waker).is_pending());
    timer.reset(MILLI);
    until("it rang", || bell.wake_count() > 0);
    timer.stop();
    assert!(poll_once(&mut future, &waker).is_pending());
    let start = Instant::now();
    timer.reset(30 * MILLI);
    if poll_once(&mut future, &waker).is_pending() {
        block_on(future).unwrap();
    }
    assert!(start.elapsed() >= 30 * MILLI);
}

/// A waker that uses its channel when it is called and when it is dropped.
struct ReentrantWaker(Receiver<u32>, gosched::chan::Sender<u32>, AtomicUsize);

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        let found = self.0.try_recv().is_ok();
        self.2.fetch_add(1 + usize::from(found), SeqCst);
    }
}

impl Drop for ReentrantWaker {
    fn drop(&mut self) {
        assert_eq!(self.0.len(), self.1.len());
        let _ = self.1.try_send(1);
    }
}

#[test]
fn a_waker_may_use_the_channel_it_waits_for() {
    in_goroutine_and_thread(|| {
        for cap in [0, 1] {
            for ending in 0..4 {
                let (tx, rx) = chan::<u32>(cap);
                let busy = Arc::new(ReentrantWaker(rx.clone(), tx.clone(), AtomicUsize::new(0)));
                let mut future = Box::pin(rx.recv_async());
                assert!(poll_once(&mut future, &Waker::from(busy.clone())).is_pending());
                // Without a buffer, a sender that times out before it waits wakes no receiver:
                // retry.
                let mut has_sent = false;
                eventually(|| {
                    if cap == 0 || !has_sent {
                        has_sent = true;
                        let _ = tx.send_timeout(1, MILLI);
                    }
                    busy.2.load(SeqCst) > 0
                });
                assert!(poll_once(&mut future, &Waker::from(busy.clone())).is_pending());
                drop(busy);
                // The channel holds the last reference to the waker.
                match ending {
                    0 => drop(future),
                    1 => drop(poll_once(&mut future, Waker::noop())),
                    2 => drop(tx.close()),
                    _ => drop(tx.send_timeout(3, MILLI)),
                }
            }
        }
    });
}

#[test]
fn values_are_dropped_with_the_last_receiver() {
    let ledger = Ledger::new(3);
    let (tx, rx) = chan::<Token>(2);
    let mut future = Box::pin(rx.recv_async());
    let (bell, waker) = CountingWaker::new();
    assert!(poll_once(&mut future, &waker).is_pending());
    tx.send(ledger.token(0)).unwrap();
    tx.send(ledger.token(1)).unwrap();
    let waits = tx.clone();
    let token = ledger.token(2);
    let waits = go(move || waits.send(token).is_err());
    until("told", || bell.wake_count() > 0);
    drop(future);
    assert_eq!(ledger.total(), 0, "a dropped future has taken nothing");
    drop(rx);
    assert!(waits.join().unwrap());
    ledger.assert_each_dropped_once();
}
