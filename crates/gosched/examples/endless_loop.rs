//! A goroutine that never gives its P back does not keep it: `cargo run --example endless_loop`.
//!
//! There is one P, and the loop has it while main sleeps. There is no call in the loop, so nothing in it
//! can ask whether others want to run. Main goes on after a second all the same. Before 1.14 this program
//! hung in Go.

use gosched::{go, time};
use std::time::Duration;

#[expect(clippy::empty_loop, reason = "what this example is about")]
fn endless() -> ! {
    loop {}
}

#[gosched::main(procs = 1)]
fn main() {
    go(|| endless());
    time::sleep(Duration::from_secs(1));
    println!("Done");
}
