//! A loop that never ends does not delay a timer: `cargo run --example never_been_here`.
//!
//! An even number that is decremented by 2 is never 1, even when it wraps, so the goroutine
//! computes forever. Main waits for a timer, and gets the only P as soon as the timer fires. Before
//! Go 1.14, the same program never reached its last line in Go.

use gosched::{go, time};
use std::hint::black_box;
use std::time::Duration;

#[gosched::main(procs = 1)]
fn main() {
    go(|| {
        let mut u = 0u32;
        loop {
            // `black_box` keeps the compiler from finding out that `u` is never 1.
            u = black_box(u).wrapping_sub(2);
            if u == 1 {
                break;
            }
        }
    });
    time::after(Duration::from_millis(5)).recv().expect("a timer sends once");
    println!("go 1.13 has never been here");
}
