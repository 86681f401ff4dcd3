//! Measures what a goroutine pays to enter and leave the runtime: turning preemption off, checking
//! that its P is still there, turning preemption on, and checking for a preemption request.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
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

/// Returns the time of one read of a cached page, which is called through `with`, in nanoseconds.
fn call(with: impl Fn(&mut dyn FnMut())) -> f64 {
    const READS: u32 = 200_000;
    let file = File::open(std::env::current_exe().unwrap_or_default());
    let Ok(file) = file else { return f64::MAX };
    let mut page = [0; 4096];
    let mut read = || _ = black_box(file.read_at(&mut page, 4096));
    let start = Instant::now();
    (0..READS).for_each(|_| with(&mut read));
    start.elapsed().as_nanos() as f64 / f64::from(READS)
}

fn main() {
    gosched::run(|| {
        let nothing = nanos(|i| _ = black_box(i));
        let entry = nanos(|i| gosched::__rules::with_preemption_off(|| _ = black_box(i)));
        println!(
            "in and out of the runtime: {:.2} ns (a loop without it: {nothing:.2})",
            entry - nothing
        );
        let (mut raw, mut marked) = (f64::MAX, f64::MAX);
        for _ in 0..5 {
            raw = raw.min(call(|f| f()));
            marked = marked.min(call(|f| gosched::blocking(f)));
        }
        println!("a read of 4 KiB: {raw:.0} ns, marked {marked:.0} ns: {:.2}", marked / raw);
    });
}
