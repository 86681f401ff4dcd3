//! Sleep, timers and tickers, by Go's rules since 1.23.

use gosched::chan::TryRecvError;
use gosched::time::{Ticker, Timer, after, sleep, sleep_until, tick};
use gosched::{chan, go, run, select, yield_now};
use gosched_tests::wait::{LIMIT, eventually, retry_until_eq};
use std::cell::Cell;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

/// Fails if less time than expected has passed, or over `LIMIT` more: then another timer must have
/// ended the wait. The bench `limits` measures how late timers are.
fn assert_took(start: Instant, expected: Duration) {
    let took = start.elapsed();
    assert!(took >= expected && took < expected + LIMIT, "{took:?} for {expected:?}");
}

#[test]
fn a_sleep_is_never_short_in_goroutines_and_threads() {
    let sleepers: Vec<_> = (0..50u32)
        .map(|i| {
            go(move || {
                let start = Instant::now();
                sleep(i * MILLI);
                assert_took(start, i * MILLI);
            })
        })
        .collect();
    let start = Instant::now();
    sleep(7 * MILLI);
    assert_took(start, 7 * MILLI);
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
}

#[test]
fn a_sleep_of_zero_or_until_a_past_time_returns_at_once() {
    run(|| {
        let start = Instant::now();
        sleep(Duration::ZERO);
        sleep_until(start);
        sleep_until(start - Duration::from_millis(5));
        assert_took(start, Duration::ZERO);
        sleep_until(start + 5 * MILLI);
        assert_took(start, 5 * MILLI);
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    run(|| {
        // On a busy machine two sleepers may become ready on two Ps before either runs. The next
        // attempt uses longer steps.
        let apart = Cell::new(10 * MILLI);
        retry_until_eq(vec![1, 2, 3, 4, 5], || {
            let step = apart.replace((apart.get() * 2).min(Duration::from_secs(2)));
            let (tx, rx) = chan::<u32>(100);
            let start = Instant::now();
            for i in [5, 1, 4, 2, 3] {
                let tx = tx.clone();
                go(move || {
                    sleep_until(start + i * step);
                    tx.send(i).unwrap();
                });
            }
            drop(tx);
            rx.iter().collect()
        });
    });
}

#[test]
fn many_sleep_at_once() {
    run(|| {
        let woken = Arc::new(AtomicUsize::new(0));
        let sleepers: Vec<_> = (0..2000u64)
            .map(|i| {
                let woken = woken.clone();
                go(move || {
                    sleep(Duration::from_micros(i * 37 % 20_000));
                    woken.fetch_add(1, SeqCst);
                })
            })
            .collect();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        assert_eq!(woken.load(SeqCst), 2000);
    });
}

#[test]
fn a_timer_sends_the_time_once() {
    run(|| {
        let start = Instant::now();
        let timer = Timer::new(5 * MILLI);
        let time = timer.chan().recv().unwrap();
        assert_took(start, 5 * MILLI);
        assert!(time >= start + 5 * MILLI && time <= Instant::now());
        assert_eq!(timer.chan().recv_timeout(10 * MILLI).ok(), None);
        assert!(!timer.stop(), "it has sent, and that was received");
    });
}

#[test]
fn a_timer_that_was_stopped_sends_nothing() {
    run(|| {
        let timer = Timer::new(3 * MILLI);
        assert!(timer.stop());
        assert!(!timer.stop());
        sleep(10 * MILLI);
        assert_eq!(timer.chan().try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn a_time_sent_before_a_stop_or_a_reset_is_never_received() {
    run(|| {
        let timer = Timer::new(MILLI);
        sleep(10 * MILLI);
        assert!(timer.stop(), "nobody had received it");
        assert_eq!(timer.chan().try_recv(), Err(TryRecvError::Empty));
        timer.reset(MILLI);
        sleep(10 * MILLI);
        let again = Instant::now();
        assert!(timer.reset(5 * MILLI));
        let time = timer.chan().recv().unwrap();
        assert!(time >= again + 5 * MILLI, "a stale time");
    });
}

#[test]
fn a_reset_moves_a_pending_timer_and_restarts_an_expired_timer() {
    run(|| {
        let start = Instant::now();
        let timer = Timer::new(Duration::from_secs(1000));
        assert!(timer.reset(5 * MILLI));
        timer.chan().recv().unwrap();
        assert_took(start, 5 * MILLI);
        assert!(!timer.reset(5 * MILLI));
        timer.chan().recv().unwrap();
        assert_took(start, 10 * MILLI);
    });
}

#[test]
fn the_channel_of_a_timer_has_length_and_capacity_zero() {
    run(|| {
        let timer = Timer::new(Duration::ZERO);
        eventually(|| {
            assert_eq!((timer.chan().len(), timer.chan().cap()), (0, 0));
            timer.chan().try_recv().is_ok()
        });
    });
}

#[test]
fn timers_of_zero_and_of_the_maximum_duration_work() {
    run(|| {
        let never = Timer::new(Duration::MAX);
        assert!(after(Duration::ZERO).recv().is_ok());
        assert_eq!(never.chan().try_recv(), Err(TryRecvError::Empty));
        assert!(never.stop());
    });
}

#[test]
fn a_ticker_keeps_one_unreceived_tick_and_drops_the_rest() {
    run(|| {
        // On a busy machine further ticks may arrive while the ticks are received.
        retry_until_eq(true, || {
            let ticker = Ticker::new(2 * MILLI);
            sleep(21 * MILLI);
            let received = std::iter::from_fn(|| ticker.chan().try_recv().ok()).take(5).count();
            (1..=2).contains(&received)
        });
        let start = Instant::now();
        let ticker = Ticker::new(2 * MILLI);
        ticker.chan().recv().unwrap();
        assert_took(start, 2 * MILLI);
    });
}

#[test]
fn ticks_come_at_the_period_and_do_not_drift() {
    run(|| {
        let start = Instant::now();
        let ticker = Ticker::new(5 * MILLI);
        for i in 1..=10u32 {
            ticker.chan().recv().unwrap();
            assert!(start.elapsed() >= i * 5 * MILLI);
        }
        assert_took(start, 50 * MILLI);
    });
}

#[test]
fn a_ticker_can_be_stopped_and_given_another_period() {
    run(|| {
        let ticker = Ticker::new(MILLI);
        ticker.chan().recv().unwrap();
        assert!(ticker.stop());
        sleep(5 * MILLI);
        assert_eq!(ticker.chan().try_recv(), Err(TryRecvError::Empty));
        let start = Instant::now();
        assert!(!ticker.reset(10 * MILLI));
        ticker.chan().recv().unwrap();
        assert_took(start, 10 * MILLI);
    });
}

#[test]
fn a_ticker_with_a_period_of_zero_panics_with_the_remedy() {
    let new = catch_unwind(|| drop(Ticker::new(Duration::ZERO)));
    let channel = catch_unwind(|| drop(tick(Duration::ZERO)));
    for refused in [new, channel] {
        let text = refused.unwrap_err();
        assert!(text.downcast_ref::<&str>().unwrap().contains("must not be zero"));
    }
}

#[test]
fn timers_race_with_stops_and_resets() {
    run(|| {
        let timer = Arc::new(Timer::new(MILLI));
        let changers: Vec<_> = (0..4u64)
            .map(|me| {
                let timer = timer.clone();
                go(move || {
                    for i in 0..300u64 {
                        match (me + i) % 3 {
                            0 => timer.stop(),
                            _ => timer.reset(Duration::from_micros((me + i) % 40)),
                        };
                        let _ = timer.chan().try_recv();
                        yield_now();
                    }
                })
            })
            .collect();
        changers.into_iter().for_each(|changer| changer.join().unwrap());
        timer.stop();
        sleep(3 * MILLI);
        assert_eq!(timer.chan().try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn timers_work_in_selects_and_are_removed_with_their_receivers() {
    run(|| {
        let (tx, rx) = chan::<u32>(0);
        go(move || {
            sleep(5 * MILLI);
            tx.send(1).unwrap();
        });
        let every = tick(MILLI);
        let limit = after(LIMIT);
        let value = loop {
            select! {
                recv(rx) -> value => break value.unwrap(),
                recv(every) -> tick => assert!(tick.is_ok()),
                recv(limit) -> _ => panic!("too late"),
            }
        };
        assert_eq!(value, 1);
        assert!(every.recv().is_ok());
    });
    let start = Instant::now();
    drop((0..1000).map(|_| after(Duration::from_secs(3600))).collect::<Vec<_>>());
    assert_took(start, Duration::ZERO);
}

#[test]
fn threads_and_goroutines_may_share_a_ticker() {
    let ticker = Arc::new(Ticker::new(MILLI));
    let receive =
        |ticker: Arc<Ticker>| move || assert_eq!(ticker.chan().iter().take(10).count(), 10);
    let thread = std::thread::spawn(receive(ticker.clone()));
    let goroutine = go(receive(ticker));
    thread.join().unwrap();
    goroutine.join().unwrap();
}
