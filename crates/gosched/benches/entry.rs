//! What a way into the runtime and out again costs a goroutine: preemption off, the look whether its P is
//! still there, preemption on, the look whether somebody asked it to stop.

use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 100_000_000;

fn nanos(f: impl Fn(u32)) -> f64 {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..ROUNDS).for_each(&f);
        start.elapsed()
    });
    best.min().map_or(0.0, |best| best.as_nanos() as f64 / f64::from(ROUNDS))
}

fn main() {
    gosched::run(|| {
        let nothing = nanos(|i| _ = black_box(i));
        let entry = nanos(|i| gosched::__rules::with_preemption_off(|| _ = black_box(i)));
        println!(
            "in and out of the runtime: {:.2} ns (a loop without it: {nothing:.2})",
            entry - nothing
        );
    });
}
