//! Workloads on channels.

use crate::common::{Measured, timed};
use crate::wait_group::WaitGroup;
use gosched::chan::{Receiver, Sender};
use gosched::{chan, go, select};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Capacity of a buffered channel.
const BOUND: usize = 128;
/// Number of producers, and number of consumers, of `chan_mpmc`.
const SIDE: u64 = 4;
/// Number of tasks of `ring`.
const RING: u64 = 503;

fn send(tx: &Sender<u64>, value: u64) {
    if tx.send(value).is_err() {
        unreachable!("the receiver exists");
    }
}

fn receive(rx: &Receiver<u64>) -> u64 {
    match rx.recv() {
        Ok(value) => value,
        Err(_) => unreachable!("the sender exists"),
    }
}

pub(crate) fn ping_pong(n: u64) -> Measured {
    let (a_tx, a) = chan::<u64>(0);
    let (b_tx, b) = chan::<u64>(0);
    let value = timed(|| {
        go(move || {
            for _ in 0..n {
                send(&b_tx, receive(&a) + 1);
            }
        });
        let mut value = 0;
        for _ in 0..n {
            send(&a_tx, value);
            value = receive(&b);
        }
        value
    });
    Measured::new(n, value).with("chan", "unbuffered")
}

pub(crate) fn buffered(n: u64) -> Measured {
    let (tx, rx) = chan::<u64>(BOUND);
    let sum = timed(|| {
        go(move || (0..n).for_each(|i| send(&tx, i)));
        rx.iter().sum()
    });
    Measured::new(n, sum).with("chan", "chan(128)")
}

/// Returns the sum of all values of `chan_mpmc`.
pub(crate) fn many_sum(n: u64) -> u64 {
    SIDE * crate::common::sum_below(n / SIDE)
}

pub(crate) fn many(n: u64) -> Measured {
    let each = n / SIDE;
    let (tx, rx) = chan::<u64>(BOUND);
    let sum = timed(|| {
        let (ended, sum) = (WaitGroup::new(SIDE), Arc::new(AtomicU64::new(0)));
        for _ in 0..SIDE {
            let tx = tx.clone();
            go(move || (0..each).for_each(|i| send(&tx, i)));
            let (rx, ended, sum) = (rx.clone(), ended.clone(), sum.clone());
            go(move || {
                sum.fetch_add(rx.iter().sum::<u64>(), Ordering::Relaxed);
                ended.done();
            });
        }
        drop(tx);
        ended.wait();
        sum.load(Ordering::Relaxed)
    });
    Measured::new(each * SIDE, sum).with("chan", "chan(128)")
}

/// Returns the number of the task that has the token last.
pub(crate) fn ring_last(n: u64) -> u64 {
    n % RING
}

pub(crate) fn ring(n: u64) -> Measured {
    let (first_tx, first) = chan::<u64>(0);
    let (done_tx, done) = chan::<u64>(0);
    let mut from = first;
    for id in 0..RING {
        let (tx, rx) = if id == RING - 1 { (first_tx.clone(), from.clone()) } else { chan(0) };
        let (from, done_tx) = (std::mem::replace(&mut from, rx), done_tx.clone());
        go(move || {
            // A task that returns drops its channel ends, so its neighbours return too.
            while let Ok(value) = from.recv() {
                if value == 0 {
                    return send(&done_tx, id);
                }
                if tx.send(value - 1).is_err() {
                    return;
                }
            }
        });
    }
    let id = timed(|| {
        send(&first_tx, n);
        receive(&done)
    });
    Measured::new(n, id).with("chan", "unbuffered")
}

/// Returns the `n`th prime, and the number of messages that are received until it is found.
fn sieve_truth(n: u64) -> (u64, u64) {
    let mut primes: Vec<u64> = Vec::new();
    let (mut messages, mut number) = (0, 1);
    while (primes.len() as u64) < n {
        number += 1;
        let passed = primes.iter().position(|prime| number % prime == 0);
        messages += passed.map_or(primes.len(), |at| at) as u64 + 1;
        if passed.is_none() {
            primes.push(number);
        }
    }
    (number, messages)
}

pub(crate) fn sieve_prime(n: u64) -> u64 {
    sieve_truth(n).0
}

pub(crate) fn sieve(n: u64) -> Measured {
    let messages = sieve_truth(n).1;
    let ((prime, rx), wall) = timed(|| {
        let (tx, mut rx) = chan::<u64>(0);
        go(move || {
            let mut number = 2;
            while tx.send(number).is_ok() {
                number += 1;
            }
        });
        let mut prime = 0;
        for _ in 0..n {
            prime = receive(&rx);
            let (tx, next) = chan(0);
            let from = std::mem::replace(&mut rx, next);
            go(move || {
                for value in from.iter().filter(|value| value % prime != 0) {
                    if tx.send(value).is_err() {
                        break;
                    }
                }
            });
        }
        (prime, rx)
    });
    // Dropping the last receiver makes the tasks of the pipeline end, one after another.
    drop(rx);
    Measured::new(messages, (prime, wall)).with("chan", "unbuffered")
}

/// Returns the number of tasks in a tree with ten branches at each node and `n` leaves, including
/// the root.
fn skynet_tasks(n: u64) -> u64 {
    std::iter::successors(Some(n), |leaves| (*leaves > 1).then(|| leaves / 10)).sum()
}

fn sky(out: &Sender<u64>, number: u64, size: u64) {
    if size == 1 {
        return send(out, number);
    }
    let (tx, rx) = chan::<u64>(0);
    let part = size / 10;
    for i in 0..10 {
        let tx = tx.clone();
        go(move || sky(&tx, number + i * part, part));
    }
    send(out, (0..10).map(|_| receive(&rx)).sum());
}

pub(crate) fn skynet(n: u64) -> Measured {
    let sum = timed(|| {
        let (tx, rx) = chan::<u64>(0);
        go(move || sky(&tx, 0, n));
        receive(&rx)
    });
    Measured::new(skynet_tasks(n), sum).with("chan", "unbuffered")
}

/// Runs `k` producers, and one consumer that receives from any channel that is ready.
pub(crate) fn selects(n: u64, k: usize) -> Measured {
    let each = n / k as u64;
    let sum = timed(|| {
        let channels: [Receiver<u64>; 4] = std::array::from_fn(|index| {
            let (tx, rx) = chan::<u64>(0);
            go(move || {
                if index < k {
                    (0..each).for_each(|i| send(&tx, i));
                    // Leaked: no channel may be closed while the consumer runs.
                    std::mem::forget(tx);
                }
            });
            rx
        });
        let [a, b, c, d] = &channels;
        let total = each * k as u64;
        match k {
            2 => {
                (0..total).map(|_| select! { recv(a) -> v => got(v), recv(b) -> v => got(v) }).sum()
            }
            _ => (0..total)
                .map(|_| {
                    select! {
                        recv(a) -> v => got(v),
                        recv(b) -> v => got(v),
                        recv(c) -> v => got(v),
                        recv(d) -> v => got(v),
                    }
                })
                .sum(),
        }
    });
    Measured::new(each * k as u64, sum).with("chan", "unbuffered")
}

fn got(value: Result<u64, gosched::chan::RecvError>) -> u64 {
    match value {
        Ok(value) => value,
        Err(_) => unreachable!("the sender exists"),
    }
}
