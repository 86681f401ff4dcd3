//! Two goroutines that pass a value to and fro, beside two threads that do the same. The events
//! must show no change of threads; the times are measured and not judged: this module never
//! requires one to be shorter.

use super::{is_run, is_undisturbed, own_id, record, until_seen};
use crate::tour::show::{Act, Failure, Names, Show};
use crate::tour::stage::Stage;
use gosched::debug::events::{Event, EventKind, Place, Source, Waker};
use gosched::{chan, go};
use std::io;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// How often the value goes to and fro while it is recorded.
const RECORDED: u32 = 3;
/// How often it does while it is measured.
const MEASURED: u32 = 20_000;

/// G1 sends a value to G2, which sends it back, `rounds` times. Returns their numbers, and how long
/// they took.
fn goroutines(rounds: u32) -> ([u64; 2], Duration) {
    let (ping, at_g2) = chan(0);
    let (pong, at_g1) = chan(0);
    let other = go(move || {
        for value in at_g2 {
            if pong.send(value).is_err() {
                break;
            }
        }
    });
    let first = go(move || {
        let begin = Instant::now();
        for round in 0..rounds {
            ping.send(round).expect("G2 receives");
            assert_eq!(at_g1.recv().expect("G2 sends"), round);
        }
        (own_id(), begin.elapsed())
    });
    let g2 = other.id().get();
    let (g1, took) = first.join().expect("G1 does not panic");
    other.join().expect("G2 does not panic");
    ([g1, g2], took)
}

/// Two threads of the system do the same.
///
/// # Errors
/// The system starts no more threads.
fn threads(rounds: u32) -> io::Result<Duration> {
    let (ping, at_other) = sync_channel(0);
    let (pong, at_first) = sync_channel(0);
    // Started by a thread, so that these are threads and no goroutines wait for them.
    let first = thread::Builder::new().spawn(move || {
        let other = thread::Builder::new().spawn(move || {
            for value in at_other {
                if pong.send(value).is_err() {
                    break;
                }
            }
        })?;
        let begin = Instant::now();
        for round in 0..rounds {
            ping.send(round).expect("the other thread receives");
            assert_eq!(at_first.recv().expect("the other thread sends"), round);
        }
        let took = begin.elapsed();
        drop((ping, at_first));
        other.join().expect("the other thread does not panic");
        Ok(took)
    })?;
    gosched::blocking_now(|| first.join().expect("the thread does not panic"))
}

pub(super) fn ping_pong(stage: &Stage) -> Result<Act, Failure> {
    let attempt = || record(1, || goroutines(RECORDED).0);
    let (events, [g1, g2]) = until_seen(attempt, |(events, ids)| is_undisturbed(events, ids));
    let mut show = Show::new(events, Names::new(&[g1, g2]), 1);
    show.pass("G2 waits", |event| matches!(event.kind, EventKind::Park { g, .. } if g == g2))?;
    let by_g1 = Waker::Goroutine(g1);
    let ready = show.step("G1 sends to G2, which goes into run_next.", |event| {
        matches!(event.kind, EventKind::Ready { g, by, to: Place::RunNext } if g == g2 && by == by_g1)
    })?;
    show.step(
        "G1 waits for the answer.",
        |event| matches!(event.kind, EventKind::Park { g, .. } if g == g1),
    )?;
    let run =
        show.step("The same thread runs G2 next, in the same slice.", |event| is_run(event, g2))?;
    let is_first_direct =
        matches!(run.kind, EventKind::Run { from: Source::RunNext, inherits: true, .. });
    show.check("G2 runs on the thread of G1, from run_next, in the slice of G1.", {
        is_first_direct && run.thread == ready.thread
    })?;
    show.step(
        "G2 sends back, and G1 goes into run_next.",
        |event| matches!(event.kind, EventKind::Ready { g, to: Place::RunNext, .. } if g == g1),
    )?;
    show.step("G1 runs.", |event| is_run(event, g1))?;
    let all: Vec<Event> = show.events().to_vec();
    let begin = all.iter().position(|event| *event == ready).unwrap_or(0);
    let end = all.iter().position(|event| event.kind == EventKind::Exit { g: g1 });
    let exchange = &all[begin..end.unwrap_or(all.len())];
    let runs: Vec<&Event> =
        exchange.iter().filter(|event| is_run(event, g1) || is_run(event, g2)).collect();
    let is_direct = |event: &&Event| {
        let is_next =
            matches!(event.kind, EventKind::Run { from: Source::RunNext, inherits: true, .. });
        is_next && event.thread == ready.thread
    };
    show.check(
        format!("So were all {} times that G1 or G2 ran, until G1 ended.", runs.len()),
        runs.len() > RECORDED as usize && runs.iter().all(is_direct),
    )?;
    let rests = |event: &Event| {
        let is_rest = matches!(event.kind, EventKind::Sleep { .. } | EventKind::Awake {});
        is_rest && event.thread == ready.thread
    };
    show.check("That thread did not sleep meanwhile.", !exchange.iter().any(rests))?;
    stage.progress("two goroutines and two threads, 20000 times to and fro");
    let before = gosched::runtime::set_procs(1);
    let (_, ours) = goroutines(MEASURED);
    gosched::runtime::set_procs(before);
    let Ok(theirs) = threads(MEASURED) else {
        show.note("The system starts no more threads, so there is nothing to compare with.");
        return Ok(show.end());
    };
    let each = |took: Duration| took.as_nanos() as f64 / f64::from(MEASURED) / 1000.0;
    show.note(format!(
        "To and fro takes two goroutines {:.2} µs and two threads {:.2} µs, {:.0} times as long.",
        each(ours),
        each(theirs),
        each(theirs) / each(ours)
    ));
    Ok(show.end())
}
