//! Measures what recorded events cost: two goroutines on one P that yield to each other, and two
//! that hand a value to each other, with a recording and without.

use gosched::debug::events;
use gosched::{chan, go, run, runtime, yield_now};
use std::time::Instant;

/// Few enough that a thread keeps all events.
const ROUNDS: u32 = 12_000;

/// Two goroutines yield in turn.
fn yields() {
    let other = go(|| (0..ROUNDS / 2).for_each(|_| yield_now()));
    (0..ROUNDS / 2).for_each(|_| yield_now());
    other.join().expect("no panic");
}

/// Two goroutines hand a value to each other.
fn hand_overs() {
    let (there, at_other) = chan::chan(0);
    let (back, at_this) = chan::chan(0);
    let other = go(move || at_other.iter().for_each(|value: u32| back.send(value).expect("open")));
    for value in 0..ROUNDS / 4 {
        there.send(value).expect("open");
        at_this.recv().expect("open");
    }
    drop(there);
    other.join().expect("no panic");
}

/// Returns the nanoseconds of one run.
fn time(work: fn()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

fn measure(name: &str, work: fn()) {
    // The fastest of interleaved runs: other programs only make a run slower.
    let (mut plain, mut recorded, mut count) = (f64::MAX, f64::MAX, 0);
    for _ in 0..10 {
        (0..5).for_each(|_| plain = plain.min(time(work)));
        let mut recording = events::start().expect("memory for events");
        // After the first runs, the memory of the events is there.
        for _ in 0..10 {
            recorded = recorded.min(time(work));
            count = recording.read().len();
        }
    }
    let each = (recorded - plain) / count as f64;
    println!(
        "{name}: {count} events, {each:.1} ns each; with a recording {:.2} times as long",
        recorded / plain
    );
}

fn main() {
    run(|| {
        runtime::set_procs(1);
        measure("yields", yields);
        measure("hand-overs", hand_overs);
    });
}
