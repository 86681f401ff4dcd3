//! Programs made of goroutines, threads, channels and select: first those of Go's own tests, then
//! random ones, and last programs that wait for an event that cannot happen.

use gosched::chan::{
    Receiver, RecvError, SendError, SendTimeoutError, Sender, TrySendError, never,
};
use gosched::{Select, chan, go, select, yield_now};
use gosched_tests::actors::{ACTOR_KINDS, ActorKind, Ledger, Token, join_all, kind_for};
use gosched_tests::alloc_blocks::Random;
use gosched_tests::children;
use gosched_tests::wait::retry_until_eq;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

// ---- programs from Go's tests ----

#[test]
fn a_sieve_of_channels_finds_the_primes() {
    let (tx, mut numbers) = chan::<u32>(0);
    let generator =
        ActorKind::Goroutine.start(move || (2..).take_while(|&i| tx.send(i).is_ok()).count());
    let mut primes = Vec::new();
    for _ in 0..25 {
        let prime = numbers.recv().unwrap();
        primes.push(prime);
        let (tx, rest) = chan(0);
        let source = std::mem::replace(&mut numbers, rest);
        go(move || {
            for number in source.iter().filter(|number| !number.is_multiple_of(prime)) {
                if tx.send(number).is_err() {
                    return;
                }
            }
        });
    }
    assert_eq!(primes[20..], [73, 79, 83, 89, 97]);
    drop(numbers);
    assert!(generator.join() > 95, "the last receiver gone ends them all");
}

/// A power series: a channel that delivers the coefficients in order.
type Series = Receiver<u64>;

fn series(f: impl FnOnce(&Sender<u64>) -> Option<()> + Send + 'static) -> Series {
    let (tx, rx) = chan(0);
    go(move || f(&tx));
    rx
}

/// Sends every coefficient to both series. One series can be read up to 16 coefficients ahead.
fn split(source: Series) -> [Series; 2] {
    let ((tx_first, first), (tx_second, second)) = (chan(16), chan(16));
    go(move || {
        let both = |value| tx_first.send(value).is_ok() && tx_second.send(value).is_ok();
        source.iter().take_while(|&value| both(value)).count()
    });
    [first, second]
}

#[test]
fn power_series_multiply_through_channels() {
    /// (f0 + x F)(g0 + x G) = f0 g0 + x (f0 G + g0 F + x F G)
    fn product(f: Series, g: Series) -> Series {
        series(move |tx| {
            let (first_f, first_g) = (f.recv().ok()?, g.recv().ok()?);
            tx.send(first_f * first_g).ok()?;
            let ([f, f_again], [g, g_again]) = (split(f), split(g));
            tx.send(first_f * g.recv().ok()? + first_g * f.recv().ok()?).ok()?;
            let rest = product(f_again, g_again);
            loop {
                let (f, g, rest) = (f.recv().ok()?, g.recv().ok()?, rest.recv().ok()?);
                tx.send(first_f * g + first_g * f + rest).ok()?;
            }
        })
    }
    let ones = || series(|tx| (0..).try_for_each(|_: u64| tx.send(1).ok()));
    let squares = product(product(ones(), ones()), ones());
    assert!(squares.iter().take(8).eq([1, 3, 6, 10, 15, 21, 28, 36]));
}

type Way<T> = fn(&T) -> u64;

fn ways_to_receive() -> [Way<Receiver<u64>>; 4] {
    [
        |rx| rx.recv().unwrap(),
        |rx| select! { recv(rx) -> value => value.unwrap() },
        |rx| select! { recv(rx) -> value => value.unwrap(), recv(never::<()>()) -> _ => 0 },
        |rx| {
            let mut list = Select::new();
            list.recv(rx, |value| value.unwrap());
            list.recv(rx, |value| value.unwrap());
            list.wait()
        },
    ]
}

fn ways_to_send() -> [Way<Sender<u64>>; 4] {
    fn done(result: Result<(), SendError<u64>>) -> u64 {
        result.map_or(0, |()| 7)
    }
    [
        |tx| done(tx.send(7)),
        |tx| select! { send(tx, 7) -> result => done(result) },
        |tx| {
            let mut slot = Some(7);
            select! {
                recv(never::<()>()) -> _ => 0,
                send(tx, take slot) -> result => done(result),
            }
        },
        |tx| {
            let mut list = Select::new();
            list.send(tx, 7, done);
            list.wait()
        },
    ]
}

#[test]
fn every_way_to_send_meets_every_way_to_receive() {
    for (sender, send) in ways_to_send().into_iter().enumerate() {
        for (receiver, receive) in ways_to_receive().into_iter().enumerate() {
            for (from, to) in ACTOR_KINDS.map(|from| ACTOR_KINDS.map(|to| (from, to))).concat() {
                let (tx, rx) = chan(0);
                let received = to.start(move || (0..5).map(|_| receive(&rx)).sum::<u64>());
                let sent = from.start(move || (0..5).map(|_| send(&tx)).sum::<u64>());
                assert_eq!([sent.join(), received.join()], [35, 35], "{sender} {receiver}");
            }
        }
    }
}

#[test]
fn a_value_sent_by_one_select_and_received_by_another_arrives_once() {
    let ends = [chan(0), chan(1), chan(0), chan(2)];
    let [tx_a, tx_b, tx_c, tx_d] = ends.each_ref().map(|(tx, _)| tx.clone());
    let [a, b, c, d] = ends.map(|(_, rx)| rx);
    let sender = ActorKind::Goroutine.start(move || {
        for i in 0..4000_usize {
            select! {
                send(tx_a, i) -> result => result.unwrap(),
                send(tx_b, i) -> result => result.unwrap(),
                send(tx_c, i) -> result => result.unwrap(),
                send(tx_d, i) -> result => result.unwrap(),
            }
        }
    });
    let receivers: Vec<_> = (0..2)
        .map(|number| {
            let (a, b, c, d) = (a.clone(), b.clone(), c.clone(), d.clone());
            kind_for(number).start(move || {
                let mut open = [true; 4];
                let mut received = Vec::new();
                while open.contains(&true) {
                    let (from, value) = select! {
                        recv(open[0].then_some(&a)) -> value => (0, value),
                        recv(open[1].then_some(&b)) -> value => (1, value),
                        recv(open[2].then_some(&c)) -> value => (2, value),
                        recv(open[3].then_some(&d)) -> value => (3, value),
                    };
                    match value {
                        Ok(value) => received.push(value),
                        Err(RecvError) => open[from] = false,
                    }
                }
                received
            })
        })
        .collect();
    sender.join();
    let mut received = join_all(receivers).concat();
    received.sort_unstable();
    assert!(received.into_iter().eq(0..4000));
}

#[test]
fn selects_over_the_same_channels_in_opposite_orders_do_not_deadlock() {
    let [(tx_a, a), (tx_b, b)] = [chan(0), chan(0)];
    let parties: Vec<_> = (0..8)
        .map(|number| {
            let (tx_a, a, tx_b, b) = (tx_a.clone(), a.clone(), tx_b.clone(), b.clone());
            kind_for(number / 4).start(move || {
                let mut balance = 0_i32;
                for _ in 0..250 {
                    balance += match number % 4 {
                        0 => select! { send(tx_a, 1) -> _ => 1, send(tx_b, 1) -> _ => 1 },
                        1 => select! { send(tx_b, 1) -> _ => 1, send(tx_a, 1) -> _ => 1 },
                        2 => select! { recv(a) -> _ => -1, recv(b) -> _ => -1 },
                        _ => select! { recv(b) -> _ => -1, recv(a) -> _ => -1 },
                    };
                }
                balance
            })
        })
        .collect();
    assert_eq!(join_all(parties).into_iter().sum::<i32>(), 0);
}

#[test]
fn plain_and_selected_operations_on_many_channels_all_end() {
    const ROUNDS: usize = 150;
    let channels: [_; 4] = std::array::from_fn(|at| chan::<usize>([0, 0, 2, 3][at]));
    let mut parties = Vec::new();
    for (at, (tx, rx)) in channels.iter().cloned().enumerate() {
        parties.push(kind_for(at).start(move || (0..ROUNDS).for_each(|i| tx.send(i).unwrap())));
        parties.push(kind_for(at + 1).start(move || {
            (0..ROUNDS).for_each(|_| assert!(rx.recv().is_ok()));
        }));
    }
    for (number, sends) in [(0, true), (1, false), (2, true), (3, false)] {
        let channels = channels.clone();
        parties.push(kind_for(number / 2).start(move || {
            let mut left = [ROUNDS; 4];
            while left != [0; 4] {
                let mut list = Select::new();
                for (at, (tx, rx)) in channels.iter().enumerate().filter(|&(at, _)| left[at] > 0) {
                    if sends {
                        list.send(tx, at, move |result| result.map(|()| at).unwrap())
                    } else {
                        list.recv(rx, move |_| at)
                    };
                }
                left[list.wait()] -= 1;
            }
        }));
    }
    join_all(parties);
    assert!(channels.iter().all(|(_, rx)| rx.try_recv().is_err()));
}

// ---- random programs ----

/// What an actor did. `sent` and `received` hold pairs of a channel and a token.
#[derive(Debug, Default)]
struct Log {
    made: Vec<usize>,
    sent: Vec<(usize, usize)>,
    received: Vec<(usize, usize)>,
}

/// A party of a random program. Some of its receivers may be missing.
struct Actor {
    random: Random,
    senders: Vec<Sender<Token>>,
    receivers: Vec<Option<Receiver<Token>>>,
    ledger: Ledger,
    next: usize,
    log: Log,
    progress: Arc<AtomicUsize>,
}

const STEPS: usize = 40;

/// Maximum number of tokens of an actor: each step makes at most two.
const TOKENS: usize = STEPS * 2;

impl Actor {
    fn token(&mut self) -> Token {
        self.log.made.push(self.next);
        self.next += 1;
        self.ledger.token(self.next - 1)
    }

    /// Picks a random channel.
    fn pick(&mut self) -> usize {
        self.random.below(self.senders.len())
    }

    fn limit(&mut self) -> Duration {
        Duration::from_micros(self.random.below(50) as u64)
    }

    fn went(&mut self, channel: usize, number: usize, back: Option<Token>) {
        match back {
            None => self.log.sent.push((channel, number)),
            Some(token) => assert_eq!(token.number, number, "another value came back"),
        }
    }

    fn came(&mut self, channel: usize, token: Option<Token>) {
        self.log.received.extend(token.map(|token| (channel, token.number)));
    }

    fn sends(&mut self) {
        let (channel, limit, token) = (self.pick(), self.limit(), self.token());
        let (number, tx) = (token.number, &self.senders[channel]);
        let back = match self.random.below(4) {
            0 => tx.send(token).err().map(|error| error.0),
            1 => tx.try_send(token).err().map(TrySendError::into_inner),
            _ => tx.send_timeout(token, limit).err().map(SendTimeoutError::into_inner),
        };
        self.went(channel, number, back);
    }

    fn receives(&mut self) {
        let (channel, limit) = (self.pick(), self.limit());
        let Some(rx) = &self.receivers[channel] else { return yield_now() };
        let token = match self.random.below(4) {
            0 => rx.recv().ok(),
            1 => rx.try_recv().ok(),
            _ => rx.recv_timeout(limit).ok(),
        };
        self.came(channel, token);
    }

    /// Selects among two sends and two receives, on random channels.
    fn selects(&mut self) {
        let [a, b, c, d] = [(); 4].map(|()| self.pick());
        let (first, second, limit) = (self.token(), self.token(), self.limit());
        let numbers = [first.number, second.number];
        let mut slot = Some(second);
        let (to_a, to_b) = (&self.senders[a], &self.senders[b]);
        let (from_c, from_d) = (self.receivers[c].as_ref(), self.receivers[d].as_ref());
        let patient = self.random.below(4) == 0;
        let mut chosen = None;
        let (mut sent, mut received) = (None, None);
        if patient {
            select! {
                send(to_a, first) -> result => sent = Some((a, numbers[0], result)),
                send(to_b, take slot) -> result => sent = Some((b, numbers[1], result)),
                recv(from_c) -> value => received = Some((c, value)),
                recv(from_d) -> value => received = Some((d, value)),
            }
        } else {
            select! {
                recv(from_d) -> value => received = Some((d, value)),
                send(to_b, take slot) -> result => sent = Some((b, numbers[1], result)),
                recv(from_c) -> value => received = Some((c, value)),
                send(to_a, first) -> result => sent = Some((a, numbers[0], result)),
                default(limit) => chosen = Some(()),
            }
        }
        assert!(chosen.is_some() || sent.is_some() != received.is_some());
        assert_eq!(
            slot.is_none(),
            sent.as_ref().is_some_and(|&(_, number, _)| number == numbers[1])
        );
        if let Some((channel, number, result)) = sent {
            self.went(channel, number, result.err().map(|error| error.0));
        }
        if let Some((channel, value)) = received {
            self.came(channel, value.ok());
        }
    }

    fn acts(mut self) -> Log {
        for _ in 0..STEPS {
            self.progress.fetch_add(1, SeqCst);
            let channel = self.pick();
            match self.random.below(300) {
                0..80 => self.sends(),
                80..200 => self.receives(),
                200..290 => self.selects(),
                290..298 => yield_now(),
                298 => self.receivers[channel] = None,
                _ => _ = self.senders[channel].close(),
            }
        }
        self.log
    }
}

fn random_program(seed: u64) {
    let mut random = Random::new(seed);
    let (ledger, progress) = (Ledger::new(8 * TOKENS), Arc::new(AtomicUsize::new(0)));
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..2 + random.below(3))
        .map(|_| chan(random.below(4)))
        .map(|(tx, rx)| (tx, Some(rx)))
        .unzip();
    let count = 4 + random.below(5);
    // About half of the channels are received from by one actor only.
    let only: Vec<_> = senders.iter().map(|_| random.below(count * 2)).collect();
    let actors: Vec<_> = (0..count)
        .map(|me| {
            let ends = receivers.iter().zip(&only);
            let actor = Actor {
                random: Random::new(seed * 100 + me as u64),
                senders: senders.clone(),
                receivers: ends
                    .map(|(rx, &only)| rx.clone().filter(|_| only >= count || only == me))
                    .collect(),
                ledger: ledger.clone(),
                next: me * TOKENS,
                log: Log::default(),
                progress: progress.clone(),
            };
            ACTOR_KINDS[random.below(2)].start(move || actor.acts())
        })
        .collect();
    // Some channels lose their last receiver while the actors run.
    receivers.iter_mut().for_each(|rx| *rx = rx.take().filter(|_| random.below(2) == 0));
    let mut before = usize::MAX;
    while progress.load(SeqCst) != before {
        before = progress.load(SeqCst);
        std::thread::sleep(Duration::from_micros(300));
    }
    let _: Vec<_> = senders.iter().map(Sender::close).collect();
    let mut logs = join_all(actors);
    let left = receivers.iter().enumerate().flat_map(|(at, rx)| {
        rx.iter().flat_map(Receiver::iter).map(move |token| (at, token.number))
    });
    logs.push(Log { received: left.collect(), ..Log::default() });
    let may_lose = |(tx, rx): (&Sender<Token>, &Option<_>)| if rx.is_none() { tx.cap() } else { 0 };
    judge(&logs, &ledger, senders.iter().zip(&receivers).map(may_lose).collect());
}

/// Checks that every token is dropped once, received at most once, and received in order.
/// `may_lose` holds, for each channel, how many values may have been in its buffer when its last
/// receiver was dropped.
fn judge(logs: &[Log], ledger: &Ledger, mut may_lose: Vec<usize>) {
    let made: BTreeSet<_> = logs.iter().flat_map(|log| log.made.iter().copied()).collect();
    for (number, drops) in ledger.drops().into_iter().enumerate() {
        assert_eq!(drops, usize::from(made.contains(&number)), "drops of token {number}");
    }
    let mut sent: BTreeSet<_> = logs.iter().flat_map(|log| log.sent.iter().copied()).collect();
    for log in logs {
        let mut last = BTreeMap::new();
        for &(channel, token) in &log.received {
            assert!(sent.remove(&(channel, token)), "{token} came twice, or was never sent");
            let before = last.insert((channel, token / TOKENS), token);
            assert!(before < Some(token), "channel {channel}: {token} after {before:?}");
        }
    }
    for (channel, token) in sent {
        let left = may_lose[channel].checked_sub(1);
        may_lose[channel] = left.unwrap_or_else(|| panic!("{token} was lost in {channel}"));
    }
}

#[test]
fn random_programs_lose_nothing_and_duplicate_nothing() {
    for seed in 0..200 {
        let outcome = std::panic::catch_unwind(|| random_program(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

// ---- deadlocks ----

/// Runs a program that must end as Go's do when all goroutines are asleep: see
/// `src/bin/chan_program.rs`.
fn deadlock(name: &str, waits: &str) {
    // A process spends at most 10 s on its crash report. On a busy machine the list of goroutines
    // may be missing, and the report then contains a line about it.
    retry_until_eq(true, || {
        let output = Command::new(env!("CARGO_BIN_EXE_chan_program")).arg(name).output().unwrap();
        let text = children::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {:?}: {text}", output.status);
        let asleep = "fatal error: all goroutines are asleep - deadlock!";
        assert_eq!(text.lines().next(), Some(asleep), "{name}: {text}");
        let is_whole = !text.contains("the report is incomplete");
        assert!(!is_whole || text.contains(waits), "{name}: {text}");
        is_whole
    });
}

#[test]
#[cfg_attr(feature = "threads", ignore = "goroutines are threads")]
fn waiting_for_an_event_that_cannot_happen_is_a_deadlock() {
    deadlock("receive", "goroutine 1 [chan receive]:");
    deadlock("send", "goroutine 1 [chan send]:");
    deadlock("never", "goroutine 1 [chan receive");
    deadlock("all arms off", "goroutine 1 [select");
    deadlock("empty slot", "goroutine 1 [select");
    deadlock("no arms", "goroutine 1 [select (no cases)]:");
    deadlock("empty list", "goroutine 1 [select (no cases)]:");
    deadlock("two selects", "goroutine 1 [select]:");
    deadlock("thread receives", "goroutine ");
}

#[test]
#[cfg_attr(feature = "threads", ignore = "goroutines are threads")]
fn waiting_for_a_timer_is_not_a_deadlock() {
    let program = || Command::new(env!("CARGO_BIN_EXE_chan_program"));
    for name in ["sleeper sends", "limits"] {
        let output = program().arg(name).output().unwrap();
        assert!(output.status.success(), "{name}: {}", children::stderr(&output));
        assert_eq!(children::stderr(&output), "");
    }
}
