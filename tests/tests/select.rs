//! `select!` and `Select` by Go's rules: one arm is chosen at random among the ready arms, and the
//! arms not chosen leave no trace. In goroutines, on ordinary threads, and between the two.

use gosched::chan::{Receiver, RecvError, SendError, Sender, never};
use gosched::{Select, chan, go, select};
use gosched_tests::actors::{
    ACTOR_KINDS, ActorKind, Ledger, Token, in_goroutine_and_thread, join_all, kind_for,
};
use gosched_tests::wait::{LIMIT, retry_until_eq, settle};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns a channel with these values in its buffer.
fn holding<T>(values: impl IntoIterator<Item = T>) -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = chan(4);
    values.into_iter().for_each(|value| tx.send(value).unwrap_or_else(|_| panic!("closed")));
    (tx, rx)
}

fn closed<T>() -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = chan(0);
    tx.close();
    (tx, rx)
}

// ---- the choice ----

/// Fails unless `choose` returns each of 0, 1 and 2 about equally often.
fn assert_fair(mut choose: impl FnMut() -> usize) {
    const ROUNDS: usize = 10_000;
    let mut chosen = [0; 3];
    (0..ROUNDS).for_each(|_| chosen[choose()] += 1);
    let fair = ROUNDS / 4..ROUNDS * 42 / 100;
    assert!(chosen.iter().all(|count| fair.contains(count)), "{chosen:?}");
}

#[test]
fn the_choice_among_ready_receives_is_fair() {
    in_goroutine_and_thread(|| {
        let [(_, a), (_, b), (_, c)] = [closed::<u8>(), closed(), closed()];
        assert_fair(|| {
            select! {
                recv(a) -> _ => 0,
                recv(b) -> _ => 1,
                recv(c) -> _ => 2,
            }
        });
    });
}

#[test]
fn the_choice_among_sends_receives_and_closed_channels_is_fair() {
    in_goroutine_and_thread(|| {
        let ((tx, rx), (send_to, sent), (_, over)) = (holding([7]), chan(1), closed::<u8>());
        assert_fair(|| {
            select! {
                recv(rx) -> value => {
                    tx.send(value.unwrap()).unwrap();
                    0
                }
                send(send_to, 5) -> result => {
                    result.unwrap();
                    assert_eq!(sent.try_recv(), Ok(5));
                    1
                }
                recv(over) -> value => {
                    assert_eq!(value, Err(RecvError));
                    2
                }
                default => unreachable!("three are ready"),
            }
        });
    });
}

#[test]
fn the_choice_of_a_select_list_is_fair() {
    let [(_, a), (_, b), (_, c)] = [closed::<u8>(), closed(), closed()];
    assert_fair(|| {
        let mut list = Select::new();
        for (at, rx) in [&a, &b, &c].into_iter().enumerate() {
            list.recv(rx, move |_| at);
        }
        list.wait()
    });
}

#[test]
fn a_select_sends_exactly_one_value() {
    in_goroutine_and_thread(|| {
        let [(a, in_a), (b, in_b), (c, in_c)] = [chan(1), chan(1), chan(1)];
        for round in 0..200 {
            let chosen = select! {
                send(a, round) -> _ => 0,
                send(b, round) -> _ => 1,
                send(c, round) -> _ => 2,
            };
            let received = [in_a.try_recv(), in_b.try_recv(), in_c.try_recv()];
            assert_eq!(received.iter().filter(|received| received.is_ok()).count(), 1);
            assert_eq!(received[chosen], Ok(round));
        }
    });
}

#[test]
fn one_channel_may_be_in_two_arms() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = holding([1, 2]);
        let mut chosen = [0; 2];
        for round in 0..200 {
            let (arm, value) = select! {
                recv(rx) -> value => (0, value),
                recv(rx) -> value => (1, value),
            };
            assert_eq!(value, Ok(1 + round));
            chosen[arm] += 1;
            tx.send(3 + round).unwrap();
        }
        assert!(chosen.iter().all(|&count| count > 50), "{chosen:?}");
    });
    for kind in ACTOR_KINDS {
        let (tx, rx) = chan(0);
        let both = kind.start(move || {
            (0..100).for_each(|i| {
                select! {
                    send(tx, i) -> result => result.unwrap(),
                    send(&tx, i) -> result => result.unwrap(),
                }
            });
        });
        assert!(rx.iter().eq(0..100));
        both.join();
    }
}

#[test]
fn a_select_never_sends_to_itself() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan(0);
        for _ in 0..50 {
            let met = select! {
                send(tx, 1) -> _ => true,
                recv(rx) -> _ => true,
                default => false,
            };
            assert!(!met);
        }
    });
}

#[test]
fn a_select_that_sends_and_receives_on_one_channel_never_receives_its_own_value() {
    for (capacity, (first, second)) in [0, 10]
        .into_iter()
        .flat_map(|capacity| ACTOR_KINDS.map(|kind| (capacity, (kind, kind_for(0)))))
    {
        let (tx, rx) = chan(capacity);
        let parties = [first, second].into_iter().enumerate().map(|(me, kind)| {
            let (tx, rx) = (tx.clone(), rx.clone());
            kind.start(move || {
                for _ in 0..300 {
                    select! {
                        send(tx, me) -> result => {
                            // The peer has finished and closed the channel.
                            if result.is_err() { return }
                        }
                        recv(rx) -> from => match from {
                            Ok(from) => assert!(capacity > 0 || from != me),
                            Err(RecvError) => return,
                        },
                    }
                }
                tx.close();
            })
        });
        join_all(parties.collect::<Vec<_>>());
    }
}

#[test]
fn an_arm_whose_channel_is_none_is_never_chosen() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = holding([1]);
        for _ in 0..50 {
            let off: Option<&Receiver<u8>> = None;
            let nowhere: Option<&Sender<u8>> = None;
            select! {
                recv(off) -> _ => unreachable!(),
                send(nowhere, 9) -> _ => unreachable!(),
                recv(Some(&rx)) -> value => assert_eq!(value, Ok(1)),
            }
            select! {
                recv(off) -> _ => unreachable!(),
                send(nowhere, 9) -> _ => unreachable!(),
                recv(never::<u8>()) -> _ => unreachable!(),
                default => (),
            }
            select! {
                recv(off) -> _ => unreachable!(),
                send(Some(&tx), 1) -> result => result.unwrap(),
            }
        }
    });
}

#[test]
fn default_is_taken_only_when_no_arm_is_ready() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan(1);
        let attempt = |tx: Option<&Sender<u8>>, rx: Option<&Receiver<u8>>| {
            select! {
                send(tx, 1) -> result => if result.is_ok() { "sent" } else { "not sent" },
                recv(rx) -> value => if value.is_ok() { "received" } else { "over" },
                default => "nothing",
            }
        };
        for _ in 0..50 {
            assert_eq!(attempt(None, Some(&rx)), "nothing");
            assert_eq!(attempt(Some(&tx), Some(&rx)), "sent");
            assert_eq!(attempt(Some(&tx), None), "nothing");
            assert_eq!(attempt(Some(&tx), Some(&rx)), "received");
        }
        tx.close();
        assert_eq!(attempt(None, Some(&rx)), "over");
        assert_eq!(attempt(Some(&tx), None), "not sent");
    });
}

#[test]
fn default_is_never_taken_while_at_least_one_arm_is_ready() {
    for _ in 0..300 {
        let [(tx_a, a), (tx_b, b)] = [chan(1), chan(1)];
        tx_a.send(1).unwrap();
        let (other_a, other_b) = (a.clone(), b.clone());
        let chooser = ActorKind::Goroutine.start(move || {
            select! {
                recv(other_a) -> _ => true,
                recv(other_b) -> _ => true,
                default => false,
            }
        });
        tx_b.send(1).unwrap();
        let _ = a.try_recv();
        assert!(chooser.join(), "one of them had a value at every moment");
        drop(b);
    }
}

// ---- the fate of values ----

#[test]
fn a_value_that_was_not_sent_is_dropped_once() {
    in_goroutine_and_thread(|| {
        let ledger = Ledger::new(100);
        let ((_, ready), (full, _keep)) = (closed::<()>(), chan::<Token>(0));
        for number in 0..100 {
            select! {
                send(full, ledger.token(number)) -> _ => unreachable!(),
                recv(ready) -> _ => assert_eq!(ledger.total(), number + 1),
            }
        }
        ledger.assert_each_dropped_once();
    });
}

#[test]
fn a_value_in_a_slot_is_taken_only_if_it_is_sent() {
    in_goroutine_and_thread(|| {
        let ledger = Ledger::new(1);
        let (tx, rx) = chan(1);
        let (_, ready) = closed::<()>();
        let mut slot = Some(ledger.token(0));
        let (mut sent, mut left) = (0, 0);
        for _ in 0..200 {
            select! {
                send(tx, take slot) -> result => {
                    result.unwrap();
                    sent += 1;
                    assert!(slot.is_none());
                    slot = Some(rx.recv().unwrap());
                }
                recv(ready) -> _ => {
                    left += 1;
                    assert!(slot.is_some());
                }
            }
        }
        assert!(sent > 50 && left > 50, "{sent} {left}");
        assert_eq!(ledger.total(), 0);
        slot = None;
        for _ in 0..50 {
            select! {
                send(tx, take slot) -> _ => unreachable!("there is nothing to send"),
                recv(ready) -> _ => (),
            }
        }
        ledger.assert_each_dropped_once();
    });
}

#[test]
fn a_value_taken_for_a_closed_channel_is_returned() {
    in_goroutine_and_thread(|| {
        let (tx, _rx) = closed::<String>();
        let mut slot = Some("text".to_owned());
        let back = select! {
            send(tx, take slot) -> result => result,
        };
        assert_eq!(back, Err(SendError("text".to_owned())));
        assert_eq!(slot, None);
        let back = select! {
            send(tx, "more".to_owned()) -> result => result,
        };
        assert_eq!(back, Err(SendError("more".to_owned())));
    });
}

#[test]
fn a_slot_keeps_its_value_if_another_arm_is_chosen() {
    for kind in ACTOR_KINDS {
        let ((full, _keep), (tx, rx)) = (chan::<Box<u8>>(0), chan(0));
        let waiter = kind.start(move || {
            let mut slot = Some(Box::new(3));
            select! {
                send(full, take slot) -> _ => unreachable!(),
                recv(rx) -> value => assert_eq!(value, Ok(4)),
            }
            slot
        });
        settle();
        tx.send(4).unwrap();
        assert_eq!(waiter.join(), Some(Box::new(3)));
    }
}

struct Bad(#[expect(dead_code, reason = "counts its drop")] Token);

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("on purpose: dropped");
    }
}

#[test]
fn an_unsent_value_that_panics_when_dropped_leaves_the_channels_intact() {
    in_goroutine_and_thread(|| {
        let ledger = Ledger::new(2);
        let ((full, _keep), (tx, rx)) = (chan::<Bad>(0), holding([ledger.token(0)]));
        let result = catch_unwind(AssertUnwindSafe(|| {
            select! {
                send(full, Bad(ledger.token(1))) -> _ => unreachable!(),
                recv(rx) -> value => drop(value),
            }
        }));
        assert!(result.is_err());
        ledger.assert_each_dropped_once();
        assert!(tx.is_empty() && !tx.is_closed() && !full.is_closed());
    });
}

#[test]
fn a_select_that_waited_leaves_no_trace_in_its_other_channels() {
    for (kind, order) in
        [(ActorKind::Goroutine, false), (ActorKind::Thread, true), (ActorKind::Goroutine, true)]
    {
        let [(tx_a, a), (tx_b, b)] = [chan(0), chan(0)];
        let (other_a, other_b) = (a.clone(), b.clone());
        let waiter = kind.start(move || {
            select! {
                recv(other_a) -> value => value,
                recv(other_b) -> value => value,
            }
        });
        let (first, second, left) = if order { (tx_a, tx_b, b) } else { (tx_b, tx_a, a) };
        first.send(1).unwrap();
        assert_eq!(waiter.join(), Ok(1));
        let receivers = [(); 2].map(|()| {
            let left = left.clone();
            kind.start(move || left.recv())
        });
        second.send(2).unwrap();
        second.send(3).unwrap();
        let mut received = join_all(receivers);
        received.sort_unstable_by_key(|value| value.ok());
        assert_eq!(received, [Ok(2), Ok(3)]);
    }
}

#[test]
fn a_select_queues_in_order_with_plain_receivers() {
    retry_until_eq(vec![0, 1, 2, 3], || {
        let (tx, rx) = chan(0);
        let waiters: Vec<_> = (0..4)
            .map(|number| {
                let rx = rx.clone();
                let waiter = kind_for(number / 2).start(move || match number % 2 {
                    0 => rx.recv().unwrap(),
                    _ => select! {
                        recv(rx) -> value => value.unwrap(),
                        recv(never::<()>()) -> _ => unreachable!(),
                    },
                });
                settle();
                waiter
            })
            .collect();
        (0..4).for_each(|i| tx.send(i).unwrap());
        join_all(waiters)
    });
}

#[test]
fn close_wakes_every_select() {
    let [(tx_a, a), (tx_b, b)] = [chan::<u8>(0), chan::<u8>(0)];
    let waiters: Vec<_> = (0..6)
        .map(|number| {
            let (tx_a, b) = (tx_a.clone(), b.clone());
            kind_for(number).start(move || {
                select! {
                    send(tx_a, 7) -> result => result == Err(SendError(7)),
                    recv(b) -> value => value == Err(RecvError),
                }
            })
        })
        .collect();
    settle();
    assert!(a.close());
    assert_eq!(join_all(waiters), [true; 6]);
    drop(tx_b);
}

// ---- syntax ----

#[test]
fn operands_are_evaluated_once_and_in_order() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = holding([1]);
        let steps = Cell::new(Vec::new());
        let step = |name: &'static str| {
            let mut all = steps.take();
            all.push(name);
            steps.set(all);
        };
        let value = select! {
            recv({ step("receiver"); &rx }) -> value => value,
            send({ step("sender"); None::<&Sender<u8>> }, { step("value"); 5 }) -> _ => unreachable!(),
        };
        assert_eq!(value, Ok(1));
        assert_eq!(steps.take(), ["receiver", "sender", "value"]);
        drop(tx);
    });
}

#[test]
fn operands_may_be_values_references_and_temporaries() {
    in_goroutine_and_thread(|| {
        fn source() -> Receiver<u32> {
            holding([1]).1
        }
        let (tx, rx) = holding([1]);
        let (by_reference, in_box) = (&rx, Box::new(rx.clone()));
        let mut sum = 0;
        select! { recv(source()) -> value => sum += value.unwrap() }
        select! { recv(rx) -> value => sum += value.unwrap(), }
        (0..2).for_each(|_| tx.send(1).unwrap());
        select! { recv(by_reference) -> value => sum += value.unwrap() }
        select! { recv(*in_box) -> value => sum += value.unwrap() }
        assert_eq!(sum, 4);
    });
}

#[test]
fn arms_may_use_return_break_and_continue() {
    fn leaves(rx: &Receiver<u32>) -> Result<u32, RecvError> {
        let mut sum = 0;
        let last = 'outer: loop {
            loop {
                select! {
                    recv(rx) -> value => match value? {
                        0 => return Ok(sum),
                        1 => break,
                        2 => continue,
                        3 => break 'outer 1000,
                        4 => continue 'outer,
                        value => sum += value,
                    },
                    recv(never::<()>()) -> _ => unreachable!(),
                }
            }
            sum += 100;
        };
        Ok(sum + last)
    }
    in_goroutine_and_thread(|| {
        let leaves = |values: &[u32]| {
            let (tx, rx) = chan(10);
            values.iter().for_each(|&value| tx.send(value).unwrap());
            drop(tx);
            leaves(&rx)
        };
        assert_eq!(leaves(&[10, 20, 0]), Ok(30));
        assert_eq!(leaves(&[10, 1, 2, 20, 4, 3, 9]), Ok(1130));
        assert_eq!(leaves(&[10, 1]), Err(RecvError));
    });
}

#[test]
fn selects_nest() {
    in_goroutine_and_thread(|| {
        let ((_tx_a, a), (_tx_b, b), (tx_c, c)) = (holding([1]), holding([2]), chan(1));
        let sum = select! {
            recv(a) -> first => select! {
                recv(b) -> second => {
                    select! {
                        send(tx_c, select! { recv(never::<u8>()) -> _ => 0, default => 3 }) -> _ => (),
                    }
                    first.unwrap() + second.unwrap() + select! { recv(c) -> third => third.unwrap() }
                }
            },
        };
        assert_eq!(sum, 6);
    });
}

#[test]
fn a_select_may_have_many_arms() {
    in_goroutine_and_thread(|| {
        let (tx, rx) = chan(0);
        let off: Option<&Receiver<u32>> = None;
        go(move || tx.send(5).unwrap());
        let value = select! {
            recv(off) -> value => value, recv(off) -> value => value, recv(off) -> value => value,
            recv(off) -> value => value, recv(off) -> value => value, recv(off) -> value => value,
            recv(off) -> value => value, recv(off) -> value => value, recv(off) -> value => value,
            recv(off) -> value => value, recv(off) -> value => value, recv(off) -> value => value,
            recv(off) -> value => value, recv(off) -> value => value, recv(off) -> value => value,
            recv(off) -> value => value, recv(off) -> value => value, recv(off) -> value => value,
            recv(off) -> value => value, recv(off) -> value => value, recv(off) -> value => value,
            recv(off) -> value => value, recv(off) -> value => value, recv(rx) -> value => value,
            default(LIMIT) => unreachable!(),
        };
        assert_eq!(value, Ok(5));
    });
}

#[test]
fn a_select_list_is_built_at_run_time() {
    in_goroutine_and_thread(|| {
        let channels: Vec<_> = (0..100).map(|_| chan(1)).collect();
        for number in (0..100).rev() {
            let mut list = Select::new();
            for (at, (_, rx)) in channels.iter().enumerate() {
                list.recv(rx, move |value| (at, value.unwrap()));
            }
            assert_eq!(list.poll(), None);
            let tx = channels[number].0.clone();
            go(move || tx.send(number).unwrap());
            let mut list = Select::new();
            for (at, (_, rx)) in channels.iter().enumerate() {
                list.recv(rx, move |value| (at, value.unwrap()));
            }
            assert_eq!(list.wait(), (number, number));
        }
    });
}

#[test]
fn a_select_list_drops_unsent_values() {
    in_goroutine_and_thread(|| {
        let ledger = Ledger::new(4);
        let [(first, a), (second, b)] = [chan(1), chan(1)];
        let mut list = Select::new();
        list.send(&first, ledger.token(0), |result| result.is_ok());
        list.send(&second, ledger.token(1), |result| result.is_ok());
        assert!(list.wait());
        assert_eq!(ledger.total(), 1);
        assert_eq!(a.len() + b.len(), 1);
        drop((a, b));
        assert_eq!(ledger.total(), 2);
        let mut list = Select::new();
        list.send(&first, ledger.token(2), |result| result.unwrap_err().0.number);
        assert_eq!(list.poll(), Some(2), "it is closed");
        let mut unused = Select::<()>::new();
        unused.send(&first, ledger.token(3), |_| ());
        drop(unused);
        ledger.assert_each_dropped_once();
    });
}
