//! A loop that only seems to end: `cargo run --example never_been_here`.
//!
//! An even number that loses 2 at a time is never 1, however often it wraps: the goroutine computes for
//! ever. Main waits for a timer on the only P there is, and gets it as soon as the timer fires. Before
//! 1.14 Go never came to the last line.

use gosched::{go, time};
use std::hint::black_box;
use std::time::Duration;

#[gosched::main(procs = 1)]
fn main() {
    go(|| {
        let mut u = 0u32;
        loop {
            // Opaque, or the compiler may see what the author did not.
            u = black_box(u).wrapping_sub(2);
            if u == 1 {
                break;
            }
        }
    });
    time::after(Duration::from_millis(5)).recv().expect("a timer sends once");
    println!("go 1.13 has never been here");
}
