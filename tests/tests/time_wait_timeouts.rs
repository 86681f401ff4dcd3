//! Timeouts: never early, and no value is lost when a timeout races with a delivery. The bench
//! `limits` measures how late timeouts are.

use gosched::chan::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, never};
use gosched::time::{sleep, sleep_until};
use gosched::{Select, chan, current, go, park_timeout, run, scope, select, yield_now};
use gosched_tests::actors::{
    ACTOR_KINDS, ActorKind, Ledger, in_goroutine_and_thread, join_all, kind_for,
};
use gosched_tests::alloc_blocks::Random;
use gosched_tests::wait::{LIMIT, retry_until_eq, settle};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(15);

/// Fails if `f` returns before `limit`, or so late that another event must have ended the wait.
fn assert_lasts(limit: Duration, f: impl FnOnce()) {
    let start = Instant::now();
    f();
    let lasted = start.elapsed();
    assert!(lasted >= limit && lasted < limit + LIMIT, "{limit:?} lasted {lasted:?}");
}

// ---- durations ----

#[test]
fn a_sleep_lasts_at_least_its_duration() {
    in_goroutine_and_thread(|| {
        assert_lasts(SHORT, || sleep(SHORT));
        assert_lasts(SHORT, || sleep_until(Instant::now() + SHORT));
        assert_lasts(Duration::from_micros(50), || sleep(Duration::from_micros(50)));
        assert_lasts(Duration::ZERO, || sleep(Duration::ZERO));
        assert_lasts(Duration::ZERO, || sleep_until(Instant::now()));
        assert_lasts(Duration::ZERO, || sleep_until(Instant::now() - SHORT));
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    // On a busy machine two sleepers may become ready before either runs. The next attempt uses
    // longer steps.
    let apart = Cell::new(Duration::from_millis(10));
    retry_until_eq(vec![0, 1, 2, 3, 4, 5], || {
        let step = apart.replace((apart.get() * 2).min(Duration::from_secs(2)));
        let woken = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now() + step;
        let sleepers: Vec<_> = [3, 0, 5, 1, 4, 2]
            .into_iter()
            .map(|place| {
                let woken = woken.clone();
                kind_for(place).start(move || {
                    sleep_until(start + step * place as u32);
                    woken.lock().unwrap().push(place);
                })
            })
            .collect();
        join_all(sleepers);
        woken.lock().unwrap().clone()
    });
}

#[test]
fn many_sleep_at_once() {
    assert_lasts(SHORT, || {
        let sleepers: Vec<_> =
            (0..100).map(|_| ActorKind::Goroutine.start(|| sleep(SHORT))).collect();
        join_all(sleepers);
    });
}

#[test]
fn timeouts_of_channels_are_kept() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan::<u8>(0);
        let (full, _keep) = chan(1);
        full.send(0).unwrap();
        for limit in [SHORT, Duration::from_micros(30), Duration::ZERO] {
            assert_lasts(limit, || {
                assert_eq!(rx.recv_timeout(limit), Err(RecvTimeoutError::Timeout))
            });
            assert_lasts(limit, || {
                assert_eq!(tx.send_timeout(7, limit), Err(SendTimeoutError::Timeout(7)));
            });
            assert_lasts(limit, || {
                assert_eq!(full.send_timeout(8, limit), Err(SendTimeoutError::Timeout(8)));
            });
        }
    });
}

#[test]
fn timeouts_of_select_are_kept() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan::<u8>(0);
        for limit in [SHORT, Duration::from_micros(30), Duration::ZERO] {
            assert_lasts(limit, || {
                let mut slot = Some(3);
                select! {
                    recv(rx) -> _ => unreachable!(),
                    send(tx, 2) -> _ => unreachable!(),
                    send(tx, take slot) -> _ => unreachable!(),
                    default(limit) => assert_eq!(slot, Some(3)),
                }
            });
            assert_lasts(limit, || {
                select! {
                    recv(None::<&Receiver<u8>>) -> _ => unreachable!(),
                    default(limit) => (),
                }
            });
            assert_lasts(limit, || {
                let mut list = Select::new();
                list.recv(&rx, |_| 0);
                list.send(&tx, 1, |_| 1);
                assert_eq!(list.wait_timeout(limit), None);
            });
            assert_lasts(limit, || assert_eq!(Select::<u8>::new().wait_timeout(limit), None));
        }
    });
}

#[test]
fn timeouts_of_park_and_join_are_kept() {
    in_goroutine_and_thread(|| {
        assert_lasts(SHORT, || park_timeout(SHORT));
        assert_lasts(Duration::ZERO, || park_timeout(Duration::ZERO));
        let (tx, rx) = chan::<u8>(0);
        let mut handle = go(move || rx.recv());
        for limit in [SHORT, Duration::ZERO] {
            let mut rest = Some(handle);
            assert_lasts(limit, || {
                rest = Some(rest.take().unwrap().join_timeout(limit).unwrap_err())
            });
            handle = rest.unwrap();
        }
        tx.send(4).unwrap();
        assert_eq!(handle.join_timeout(LIMIT).unwrap().unwrap(), Ok(4));
    });
}

#[test]
fn a_goroutine_that_is_not_joined_in_time_continues() {
    in_goroutine_and_thread(|| {
        let opened = AtomicBool::new(false);
        let sum = scope(|s| {
            let handle = s.go(|| {
                while !opened.load(SeqCst) {
                    yield_now();
                }
                7
            });
            let handle = handle.join_timeout(SHORT).unwrap_err();
            opened.store(true, SeqCst);
            handle.join_timeout(LIMIT).unwrap().unwrap()
        });
        assert_eq!(sum, 7);
        let panics = go(|| panic!("on purpose: joined"));
        let result: Result<(), _> = panics.join_timeout(LIMIT).unwrap();
        assert!(result.unwrap_err().is_panic());
    });
}

#[test]
fn an_unpark_ends_a_park_before_its_timeout() {
    run(|| {
        let start = Instant::now();
        current().unwrap().unpark();
        park_timeout(LIMIT);
        let me = current().unwrap();
        let other = std::thread::spawn(move || {
            settle();
            me.unpark();
        });
        park_timeout(LIMIT);
        assert!(start.elapsed() < LIMIT);
        let _ = other.join();
        assert_lasts(SHORT, || park_timeout(SHORT));
    });
}

#[test]
fn the_longest_timeout_does_not_overflow() {
    for limit in [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_nanos(u64::MAX)]
    {
        for kind in ACTOR_KINDS {
            let (tx, rx) = chan(0);
            let answers = kind.start(move || {
                let first = rx.recv_timeout(limit).unwrap();
                let second = select! {
                    recv(rx) -> value => value.unwrap(),
                    default(limit) => unreachable!(),
                };
                let mut list = Select::new();
                list.recv(&rx, |value| value.unwrap());
                [first, second, list.wait_timeout(limit).unwrap()]
            });
            settle();
            assert_eq!(tx.send_timeout(1, limit), Ok(()));
            let handle = go(move || (0..2).for_each(|i| tx.send_timeout(2 + i, limit).unwrap()));
            handle.join_timeout(limit).unwrap().unwrap();
            assert_eq!(answers.join(), [1, 2, 3]);
        }
        let asleep = go(move || sleep(limit));
        let parked = go(move || park_timeout(limit));
        settle();
        assert!(!asleep.is_finished() && !parked.is_finished());
        parked.goroutine().unpark();
        parked.join().unwrap();
    }
}

// ---- waits that end early ----

#[test]
fn a_delivery_ends_a_wait_at_once() {
    for kind in ACTOR_KINDS {
        let (tx, rx) = chan(0);
        let start = Instant::now();
        let receiver = kind.start(move || (rx.recv_timeout(LIMIT), rx.recv_timeout(LIMIT)));
        settle();
        assert_eq!(tx.send_timeout(1, LIMIT), Ok(()));
        assert_eq!(tx.send_timeout(2, LIMIT), Ok(()));
        assert_eq!(receiver.join(), (Ok(1), Ok(2)));
        assert!(start.elapsed() < LIMIT);
    }
}

#[test]
fn close_ends_a_wait_at_once_and_returns_values() {
    for kind in ACTOR_KINDS {
        let (tx, rx) = chan::<String>(0);
        let start = Instant::now();
        let sender = kind.start(move || tx.send_timeout("back".into(), LIMIT));
        let (other, none) = chan::<()>(3);
        let receiver = kind.start(move || none.recv_timeout(LIMIT));
        settle();
        assert!(rx.close());
        drop(other);
        assert_eq!(sender.join(), Err(SendTimeoutError::Closed("back".into())));
        assert_eq!(receiver.join(), Err(RecvTimeoutError::Closed));
        assert!(start.elapsed() < LIMIT);
        assert_eq!(rx.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Closed));
    }
}

#[test]
fn a_timeout_of_zero_takes_an_available_value() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan(1);
        assert_eq!(tx.send_timeout(1, Duration::ZERO), Ok(()));
        assert_eq!(rx.recv_timeout(Duration::ZERO), Ok(1));
        for _ in 0..50 {
            select! {
                send(tx, 2) -> result => result.unwrap(),
                default(Duration::ZERO) => unreachable!(),
            }
            select! {
                recv(rx) -> value => assert_eq!(value, Ok(2)),
                default(Duration::ZERO) => unreachable!(),
            }
        }
    });
}

#[test]
fn an_unused_timeout_causes_no_later_wakeup() {
    for kind in ACTOR_KINDS {
        let ((tx, rx), (tx_later, later)) = (chan(1), chan(0));
        let limit = Duration::from_millis(5);
        let waiter = kind.start(move || {
            for _ in 0..20 {
                while rx.recv_timeout(limit).is_err() {}
            }
            assert_lasts(SHORT, || sleep(SHORT));
            assert_lasts(SHORT, || park_timeout(SHORT));
            later.recv()
        });
        (0..20).for_each(|i| tx.send(i).unwrap());
        std::thread::sleep(SHORT * 4);
        tx_later.send(9).unwrap();
        assert_eq!(waiter.join(), Ok(9));
    }
}

#[test]
fn a_waiter_that_timed_out_is_no_longer_in_the_queue() {
    in_goroutine_and_thread(|| {
        let (limit, ledger) = (Duration::from_millis(1), Ledger::new(2));
        let (tx, rx) = chan(0);
        let Err(SendTimeoutError::Timeout(back)) = tx.send_timeout(ledger.token(0), limit) else {
            panic!("nobody receives");
        };
        assert!(rx.try_recv().is_err(), "its value went back to it");
        assert_eq!((back.number, ledger.total()), (0, 0));
        drop(back);
        assert!(rx.recv_timeout(limit).is_err());
        assert!(tx.try_send(ledger.token(1)).is_err(), "nobody receives any more");
        ledger.assert_each_dropped_once();
    });
}

// ---- timeouts that race with deliveries ----

/// Sends in one of three ways that can time out. Returns whether the value was sent.
fn sent_in_time(tx: &Sender<usize>, value: usize, limit: Duration) -> bool {
    match value % 3 {
        0 => tx.send_timeout(value, limit).is_ok(),
        1 => {
            let mut slot = Some(value);
            let sent = select! {
                send(tx, take slot) -> result => result.is_ok(),
                recv(never::<()>()) -> _ => unreachable!(),
                default(limit) => false,
            };
            assert_eq!(sent, slot.is_none());
            sent
        }
        _ => {
            let mut list = Select::new();
            list.send(tx, value, |result| result.is_ok());
            list.wait_timeout(limit).unwrap_or(false)
        }
    }
}

#[test]
fn no_value_is_lost_when_a_timeout_races_with_a_delivery() {
    fn limit(random: &mut Random) -> Duration {
        Duration::from_micros(random.below(51) as u64)
    }
    for (capacity, (from, to)) in [0, 1]
        .into_iter()
        .flat_map(|capacity| [(0, 0), (0, 1), (1, 0)].map(|ends| (capacity, ends)))
    {
        let (tx, rx) = chan(capacity);
        let senders: Vec<_> = (0..2)
            .map(|sender| {
                let (tx, mut random) = (tx.clone(), Random::new(sender));
                kind_for(from).start(move || {
                    let values = (0..600).map(|i| i * 2 + sender as usize);
                    let sent = values.filter(|&i| sent_in_time(&tx, i, limit(&mut random)));
                    sent.collect::<Vec<_>>()
                })
            })
            .collect();
        drop(tx);
        let receivers: Vec<_> = (0..2)
            .map(|receiver| {
                let (rx, mut random) = (rx.clone(), Random::new(10 + receiver));
                kind_for(to).start(move || {
                    let mut received = Vec::new();
                    loop {
                        match rx.recv_timeout(limit(&mut random)) {
                            Ok(value) => received.push(value),
                            Err(RecvTimeoutError::Timeout) if to == 0 => yield_now(),
                            Err(RecvTimeoutError::Timeout) => {}
                            Err(RecvTimeoutError::Closed) => return received,
                        }
                    }
                })
            })
            .collect();
        let (mut sent, mut received) = (join_all(senders).concat(), join_all(receivers).concat());
        sent.sort_unstable();
        received.sort_unstable();
        assert_eq!(sent, received, "capacity {capacity}");
    }
}

#[test]
fn a_join_whose_timeout_races_with_the_end_returns_the_result() {
    let joins = |seed| {
        let mut random = Random::new(seed);
        for i in 0..300 {
            let yields = random.below(20);
            let mut handle = go(move || {
                (0..yields).for_each(|_| yield_now());
                Box::new(i)
            });
            let result = loop {
                let limit = Duration::from_micros(random.below(30) as u64);
                match handle.join_timeout(limit) {
                    Ok(result) => break result,
                    Err(again) => handle = again,
                }
            };
            assert_eq!(*result.unwrap(), i);
        }
    };
    let parties: Vec<_> =
        (0..4).map(|seed| kind_for(seed).start(move || joins(seed as u64))).collect();
    join_all(parties);
}

#[test]
fn a_park_whose_timeout_races_with_an_unpark_ends_once() {
    let parked: Vec<_> = (0..4)
        .map(|seed| {
            let mut random = Random::new(seed);
            go(move || {
                for _ in 0..500 {
                    park_timeout(Duration::from_micros(random.below(30) as u64));
                }
            })
        })
        .collect();
    while !parked.iter().all(gosched::JoinHandle::is_finished) {
        parked.iter().for_each(|handle| handle.goroutine().unpark());
        std::thread::sleep(Duration::from_micros(20));
    }
    parked.into_iter().for_each(|handle| handle.join().unwrap());
}
