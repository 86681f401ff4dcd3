//! An endless loop does not stop other goroutines: `cargo run --example endless_loop`.
//!
//! There is one P, and the loop holds it while main sleeps. The loop contains no call, so it never
//! enters the runtime by itself. The runtime preempts the loop by a signal, and main continues
//! after one second. Before Go 1.14, the same program hung in Go.

use gosched::{go, time};
use std::time::Duration;

#[expect(clippy::empty_loop, reason = "this example is about an endless loop")]
fn endless() -> ! {
    loop {}
}

#[gosched::main(procs = 1)]
fn main() {
    go(|| endless());
    time::sleep(Duration::from_secs(1));
    println!("Done");
}
