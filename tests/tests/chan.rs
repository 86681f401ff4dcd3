//! Channels follow Go's rules: order, close, which waiter is served, and what happens to values.
//! Most tests run in goroutines, on ordinary threads, and between the two.

use gosched::chan::{
    Receiver, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender, TryRecvError,
    TrySendError,
};
use gosched::{chan, go};
use gosched_tests::actors::{
    ACTOR_KINDS, ActorHandle, ActorKind, Ledger, Token, in_goroutine_and_thread, join_all, kind_for,
};
use gosched_tests::alloc_blocks::Random;
use gosched_tests::wait::{retry_until_eq, settle, until};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

// ---- types ----

#[test]
fn channel_ends_are_send_and_sync_if_their_elements_are_send() {
    fn anywhere<T: Clone + Send + Sync + 'static>() {}
    anywhere::<Sender<u8>>();
    anywhere::<Receiver<u8>>();
    anywhere::<Sender<std::cell::Cell<u8>>>();
    anywhere::<Receiver<std::cell::Cell<u8>>>();
    anywhere::<Sender<Box<dyn Send>>>();
    anywhere::<Receiver<Box<dyn Send>>>();
}

#[test]
fn every_channel_error_has_a_text() {
    fn text(error: impl std::error::Error) -> String {
        error.to_string()
    }
    let texts = [
        text(SendError(1)),
        text(TrySendError::Full(1)),
        text(TrySendError::Closed(1)),
        text(SendTimeoutError::Timeout(1)),
        text(SendTimeoutError::Closed(1)),
        text(RecvError),
        text(TryRecvError::Empty),
        text(TryRecvError::Closed),
        text(RecvTimeoutError::Timeout),
        text(RecvTimeoutError::Closed),
    ];
    assert!(texts.iter().all(|text| !text.is_empty()), "{texts:?}");
}

// ---- order ----

#[test]
fn values_of_one_sender_arrive_in_order() {
    for (capacity, from, to) in [0, 1, 2, 10].into_iter().flat_map(|capacity| {
        ACTOR_KINDS.map(|from| ACTOR_KINDS.map(|to| (capacity, from, to))).concat()
    }) {
        let (tx, rx) = chan::<u32>(capacity);
        let sender = from.start(move || (0..200).for_each(|i| tx.send(i).unwrap()));
        let received = to.start(move || rx.iter().collect::<Vec<_>>());
        sender.join();
        assert!(received.join().into_iter().eq(0..200), "{capacity} {from:?} {to:?}");
    }
}

#[test]
fn values_of_each_of_many_senders_arrive_in_order() {
    for capacity in [0, 3] {
        let (tx, rx) = chan(capacity);
        let senders: Vec<_> = (0..6)
            .map(|sender| {
                let tx = tx.clone();
                kind_for(sender).start(move || (0..100).for_each(|i| tx.send((sender, i)).unwrap()))
            })
            .collect();
        drop(tx);
        let mut next = [0; 6];
        for (sender, i) in rx {
            assert_eq!(i, next[sender], "sender {sender}");
            next[sender] += 1;
        }
        join_all(senders);
        assert_eq!(next, [100; 6]);
    }
}

/// Starts six parties in order. Each has time to block before the next one starts.
fn in_a_row<T: Send + 'static>(
    work: impl Fn(usize) -> T + Clone + Send + 'static,
) -> Vec<ActorHandle<T>> {
    (0..6)
        .map(|number| {
            let work = work.clone();
            let party = kind_for(number).start(move || work(number));
            settle();
            party
        })
        .collect()
}

#[test]
fn receivers_that_wait_are_served_first_come_first_served() {
    retry_until_eq(vec![0, 1, 2, 3, 4, 5], || {
        let (tx, rx) = chan(0);
        let receivers = in_a_row(move |_| rx.recv().unwrap());
        (0..6).for_each(|i| tx.send(i).unwrap());
        join_all(receivers)
    });
}

#[test]
fn senders_that_wait_are_served_first_come_first_served() {
    for capacity in [0, 2] {
        retry_until_eq(vec![0, 1, 2, 3, 4, 5], || {
            let (tx, rx) = chan(capacity);
            let senders = in_a_row(move |number| tx.send(number).unwrap());
            let received = (0..6).map(|_| rx.recv().unwrap()).collect();
            join_all(senders);
            received
        });
    }
}

#[test]
fn the_value_of_a_waiting_sender_is_received_after_the_buffered_values() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan(2);
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        let third = tx.clone();
        go(move || third.send(3).unwrap());
        settle();
        assert_eq!([rx.recv(), rx.recv(), rx.recv()], [Ok(1), Ok(2), Ok(3)]);
    });
}

// ---- send and receive ----

#[test]
fn an_unbuffered_send_returns_only_once_received() {
    for (from, to) in ACTOR_KINDS.map(|from| ACTOR_KINDS.map(|to| (from, to))).concat() {
        let (tx, rx) = chan(0);
        let sent = Arc::new(AtomicBool::new(false));
        let sender = from.start({
            let sent = sent.clone();
            move || {
                tx.send(5).unwrap();
                sent.store(true, SeqCst);
            }
        });
        settle();
        assert!(!sent.load(SeqCst), "nobody has received it");
        assert_eq!(to.start(move || rx.recv()).join(), Ok(5));
        sender.join();
    }
}

#[test]
fn a_receive_returns_only_once_something_was_sent() {
    for kind in ACTOR_KINDS {
        let (tx, rx) = chan(1);
        let received = Arc::new(AtomicBool::new(false));
        let receiver = kind.start({
            let received = received.clone();
            move || {
                let value = rx.recv();
                received.store(true, SeqCst);
                value
            }
        });
        settle();
        assert!(!received.load(SeqCst));
        tx.send(5).unwrap();
        assert_eq!(receiver.join(), Ok(5));
    }
}

#[test]
fn a_buffered_send_waits_only_while_the_buffer_is_full() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan(10);
        (0..10).for_each(|i| tx.send(i).unwrap());
        assert_eq!((tx.len(), rx.len(), tx.cap(), rx.cap()), (10, 10, 10, 10));
        let full = Arc::new(AtomicBool::new(true));
        let (eleventh, is_full) = (tx.clone(), full.clone());
        let handle = go(move || {
            eleventh.send(10).unwrap();
            is_full.store(false, SeqCst);
        });
        settle();
        assert!(full.load(SeqCst));
        assert_eq!(rx.recv(), Ok(0));
        handle.join().unwrap();
        assert!(rx.try_iter().eq(1..11));
        assert_eq!((tx.len(), rx.len()), (0, 0));
    });
}

#[test]
fn an_unbuffered_channel_always_has_length_zero() {
    let (tx, rx) = chan(0);
    let waiting = tx.clone();
    let sender = ActorKind::Goroutine.start(move || waiting.send(1).unwrap());
    settle();
    assert_eq!((tx.len(), rx.len(), tx.cap(), rx.cap()), (0, 0, 0, 0));
    assert_eq!(rx.recv(), Ok(1));
    sender.join();
}

/// Checks the results of `try_send` and `try_recv`, with and without a waiting counterpart, as in
/// Go's `nonblock.go`.
fn attempts<T: Clone + PartialEq + std::fmt::Debug + Send + 'static>(value: T) {
    let (tx, rx) = chan::<T>(0);
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(tx.try_send(value.clone()), Err(TrySendError::Full(value.clone())));
    let (tx_buffered, rx_buffered) = chan::<T>(1);
    assert_eq!(rx_buffered.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(tx_buffered.try_send(value.clone()), Ok(()));
    assert_eq!(tx_buffered.try_send(value.clone()), Err(TrySendError::Full(value.clone())));
    assert_eq!(rx_buffered.try_recv(), Ok(value.clone()));

    let sender = ActorKind::Goroutine.start({
        let (tx, value) = (tx.clone(), value.clone());
        move || tx.send(value).unwrap()
    });
    until("a sender waits", || rx.try_recv().is_ok_and(|received| received == value));
    sender.join();
    let receiver = ActorKind::Thread.start({
        let rx = rx.clone();
        move || rx.recv()
    });
    until("a receiver waits", || tx.try_send(value.clone()).is_ok());
    assert_eq!(receiver.join(), Ok(value.clone()));

    assert!(tx.close() && tx_buffered.close());
    assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(tx.try_send(value.clone()), Err(TrySendError::Closed(value.clone())));
    assert_eq!(tx_buffered.try_send(value.clone()), Err(TrySendError::Closed(value)));
}

#[test]
fn try_send_and_try_recv_return_at_once_for_elements_of_every_size() {
    attempts(7_u8);
    attempts(-7_i64);
    attempts(true);
    attempts(());
    attempts("text".to_owned());
    attempts([3_u64; 512]);
}

#[test]
fn try_recv_never_returns_empty_if_the_channel_is_never_both_empty_and_open() {
    for _ in 0..300 {
        let (tx, rx) = chan(1);
        tx.send(1).unwrap();
        let other = rx.clone();
        let attempt = ActorKind::Goroutine.start(move || other.try_recv());
        tx.close();
        let here = rx.recv();
        match attempt.join() {
            Ok(1) => assert_eq!(here, Err(RecvError)),
            Err(TryRecvError::Closed) => assert_eq!(here, Ok(1)),
            wrong => panic!("{wrong:?}"),
        }
    }
}

#[test]
fn iterators_end_when_the_channel_is_empty_or_closed() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan(8);
        (0..4).for_each(|i| tx.send(i).unwrap());
        assert!(rx.try_iter().eq(0..4));
        (0..3).for_each(|i| tx.send(i).unwrap());
        assert!(rx.iter().take(2).eq(0..2));
        tx.close();
        let mut last = Vec::new();
        for value in &rx {
            last.push(value);
        }
        assert_eq!(last, [2]);
        assert_eq!(rx.into_iter().next(), None);
    });
}

// ---- close ----

#[test]
fn buffered_values_can_be_received_after_close() {
    in_goroutine_and_thread(|| {
        for by_receiver in [false, true] {
            let (tx, rx) = chan(3);
            tx.send(1).unwrap();
            tx.send(2).unwrap();
            assert!(!tx.is_closed() && !rx.is_closed());
            assert!(if by_receiver { rx.close() } else { tx.close() });
            assert!(tx.is_closed() && rx.is_closed());
            assert_eq!(tx.send(3), Err(SendError(3)));
            assert_eq!(rx.len(), 2);
            assert_eq!([rx.recv(), rx.recv(), rx.recv()], [Ok(1), Ok(2), Err(RecvError)]);
            assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
        }
    });
}

#[test]
fn only_the_first_close_returns_true() {
    for _ in 0..50 {
        let (tx, rx) = chan::<()>(1);
        let closers: Vec<_> = (0..6)
            .map(|number| {
                let (tx, rx) = (tx.clone(), rx.clone());
                kind_for(number).start(move || if number < 3 { tx.close() } else { rx.close() })
            })
            .collect();
        let first = join_all(closers).into_iter().filter(|&first| first).count();
        assert_eq!(first, 1);
        assert!(!tx.close() && !rx.close());
    }
}

#[test]
fn close_wakes_every_receiver() {
    let (tx, rx) = chan::<u32>(2);
    let receivers = in_a_row(move |_| rx.recv());
    tx.close();
    assert_eq!(join_all(receivers), [Err(RecvError); 6]);
}

#[test]
fn close_gives_every_waiting_sender_its_value_back() {
    for capacity in [0, 2] {
        let (tx, rx) = chan(capacity);
        (100..100 + capacity).for_each(|i| tx.send(i).unwrap());
        let senders = in_a_row(move |number| tx.send(number));
        assert!(rx.close());
        let expected: Vec<_> = (0..6).map(|number| Err(SendError(number))).collect();
        assert_eq!(join_all(senders), expected);
        assert!(rx.iter().eq(100..100 + capacity), "what was sent before stays");
    }
}

#[test]
fn dropping_the_last_sender_closes_the_channel() {
    for kind in ACTOR_KINDS {
        let (tx, rx) = chan::<u32>(1);
        let second = tx.clone();
        tx.send(1).unwrap();
        drop(tx);
        assert!(!rx.is_closed());
        assert_eq!(rx.recv(), Ok(1));
        let other = rx.clone();
        let receiver = kind.start(move || other.recv());
        settle();
        drop(second);
        assert_eq!(receiver.join(), Err(RecvError));
        assert!(rx.is_closed());
        assert!(!rx.close(), "it was closed");
    }
}

#[test]
fn dropping_the_last_receiver_closes_the_channel_and_returns_waiting_values() {
    for kind in ACTOR_KINDS {
        let (tx, rx) = chan::<String>(0);
        let second = rx.clone();
        drop(rx);
        assert!(!tx.is_closed());
        let other = tx.clone();
        let sender = kind.start(move || other.send("waits".into()));
        settle();
        drop(second);
        assert_eq!(sender.join(), Err(SendError("waits".into())));
        assert!(tx.is_closed());
        assert_eq!(tx.try_send("late".into()), Err(TrySendError::Closed("late".into())));
    }
}

#[test]
fn dropping_the_last_receiver_drops_buffered_values_at_once() {
    in_goroutine_and_thread(|| {
        let ledger = Ledger::new(5);
        let (tx, rx) = chan(5);
        let second = rx.clone();
        (0..5).for_each(|i| tx.send(ledger.token(i)).unwrap());
        drop(rx);
        assert_eq!(second.recv().unwrap().number, 0);
        assert_eq!(ledger.total(), 1);
        drop(second);
        ledger.assert_each_dropped_once();
        drop(tx);
        ledger.assert_each_dropped_once();
    });
}

#[test]
fn no_value_leaks_when_the_last_receiver_is_dropped_during_sends() {
    for round in 0..200 {
        let ledger = Ledger::new(4);
        let (tx, rx) = chan(2);
        let senders: Vec<_> = (0..4)
            .map(|number| {
                let (tx, token) = (tx.clone(), ledger.token(number));
                kind_for(number + round).start(move || drop(tx.try_send(token)))
            })
            .collect();
        drop(rx);
        join_all(senders);
        ledger.assert_each_dropped_once();
        drop(tx);
    }
}

#[test]
fn values_sent_successfully_around_a_close_are_received_exactly_once() {
    let mut random = Random::new(1);
    for capacity in [0, 0, 1, 3, 0, 2, 8, 1] {
        let (tx, rx) = chan(capacity);
        let senders: Vec<_> = (0..4)
            .map(|sender| {
                let tx = tx.clone();
                kind_for(sender).start(move || {
                    let sent = (0..).take_while(|&i| tx.send((sender, i)).is_ok());
                    sent.map(|i| (sender, i)).collect::<Vec<_>>()
                })
            })
            .collect();
        let receivers: Vec<_> = (0..3)
            .map(|number| {
                let rx = rx.clone();
                kind_for(number).start(move || rx.iter().collect::<Vec<_>>())
            })
            .collect();
        let mut own: Vec<_> = rx.iter().take(random.below(500)).collect();
        assert!(tx.close());
        own.extend(rx.iter());
        own.extend(join_all(receivers).concat());
        let sent = join_all(senders).concat();
        let received: BTreeSet<_> = own.iter().copied().collect();
        assert_eq!(received.len(), own.len(), "none came twice");
        assert_eq!(received, sent.into_iter().collect());
    }
}

// ---- elements ----

#[test]
fn zero_sized_values_are_counted() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
        }
    }
    for capacity in [0, 3] {
        DROPS.store(0, SeqCst);
        let (tx, rx) = chan(capacity);
        let sender = ActorKind::Goroutine.start(move || {
            (0..100).for_each(|_| tx.send(Nothing).unwrap_or_else(|_| panic!("closed")));
        });
        assert_eq!(rx.iter().count(), 100);
        sender.join();
        assert_eq!(DROPS.load(SeqCst), 100);
    }
    let (tx, rx) = chan(usize::MAX);
    assert_eq!(tx.cap(), usize::MAX);
    (0..1000).for_each(|_| tx.send(()).unwrap());
    assert_eq!(rx.try_iter().count(), 1000);
}

#[test]
fn large_values_arrive_whole() {
    fn page(number: u64) -> [u64; 512] {
        std::array::from_fn(|at| number * 1000 + at as u64)
    }
    for (capacity, kind) in
        [(0, ActorKind::Goroutine), (0, ActorKind::Thread), (2, ActorKind::Goroutine)]
    {
        let (tx, rx) = chan(capacity);
        let sender = kind.start(move || (0..100).for_each(|i| tx.send(page(i)).unwrap()));
        for i in 0..100 {
            assert!(rx.recv() == Ok(page(i)), "{i}");
        }
        sender.join();
    }
}

#[test]
fn buffered_values_outlive_the_last_sender_and_are_freed_with_the_last_receiver() {
    let shared = Arc::new(7);
    let (tx, rx) = chan(1000);
    (0..1000).for_each(|_| tx.send(Box::new(shared.clone())).unwrap());
    assert_eq!(Arc::strong_count(&shared), 1001);
    drop(tx);
    assert_eq!(Arc::strong_count(&shared), 1001, "they can still be received");
    assert_eq!(**rx.recv().unwrap(), 7);
    drop(rx);
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn a_failed_send_returns_the_value_that_was_sent() {
    let ledger = Ledger::new(3);
    let (tx, rx) = chan(0);
    let TrySendError::Full(token) = tx.try_send(ledger.token(0)).unwrap_err() else {
        panic!("nobody closed it");
    };
    drop(rx);
    assert_eq!(ledger.total(), 0);
    let TrySendError::Closed(second) = tx.try_send(ledger.token(1)).unwrap_err() else {
        panic!("it is closed");
    };
    let SendError(third) = tx.send(ledger.token(2)).unwrap_err();
    assert_eq!([token.number, second.number, third.number], [0, 1, 2]);
    assert_eq!(ledger.total(), 0);
    drop((token, second, third));
    ledger.assert_each_dropped_once();
}

/// A value whose destructor panics if `panics` is set.
struct Bad {
    _token: Token,
    panics: bool,
}

impl Drop for Bad {
    fn drop(&mut self) {
        assert!(!self.panics, "on purpose: dropped");
    }
}

#[test]
fn a_value_that_panics_on_drop_does_not_leak_other_values() {
    in_goroutine_and_thread(|| {
        let ledger = Ledger::new(5);
        let (tx, rx) = chan(5);
        for number in 0..5 {
            let value = Bad { _token: ledger.token(number), panics: number == 2 };
            assert!(tx.send(value).is_ok());
        }
        let second = tx.clone();
        assert!(catch_unwind(AssertUnwindSafe(move || drop(rx))).is_err());
        ledger.assert_each_dropped_once();
        assert!(tx.is_closed());
        drop((tx, second));
        ledger.assert_each_dropped_once();
    });
}
