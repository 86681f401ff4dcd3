//! Goroutines that wait for each other's mutex, and a goroutine that waits for itself.

use gosched::runtime::Leak;
use gosched::sync::{Mutex, WaitGroup};
use gosched::{chan, go};
use gosched_tests::wait::{CHILD_LIMIT, LIMIT};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[gosched::main(alloc = off)]
pub(crate) fn program() -> ExitCode {
    let name = std::env::args().nth(2);
    if name.as_deref() == Some("alone") {
        return alone();
    }
    let locks = [0, 1].map(|_| Arc::new(Mutex::new(())));
    let both = WaitGroup::new();
    both.add(2);
    for turn in [0, 1] {
        let (own, next) = (locks[turn].clone(), locks[1 - turn].clone());
        let both = both.clone();
        go(move || {
            let _own = own.lock();
            both.done();
            both.wait();
            drop(next.lock());
        });
    }
    both.wait();
    if name.as_deref() == Some("quit") {
        // Wait until both goroutines are parked.
        while !gosched::runtime::dump_json().matches("sync.Mutex.Lock").count().eq(&2) {
            gosched::yield_now();
        }
        println!("ready");
        gosched::time::sleep(CHILD_LIMIT);
    }
    let _ = chan::never::<()>().recv();
    ExitCode::SUCCESS
}

/// Holds a sender of the channel that it receives from.
#[inline(never)]
fn keeps_its_own_sender() -> u32 {
    let (tx, rx) = chan::<u32>(0);
    for i in 0..3 {
        let tx = tx.clone();
        go(move || tx.send(i).unwrap());
    }
    let sum = rx.iter().sum();
    drop(black_box(tx));
    sum
}

/// Prints the leak hint for a goroutine that waits for itself.
fn alone() -> ExitCode {
    let id = go(keeps_its_own_sender).id();
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let hints = gosched::runtime::leak_hints(Duration::from_millis(20));
        let is_told = |leak: &&Leak| leak.goroutines == [id] && leak.alone == 1;
        if let Some(leak) = hints.leaks.iter().find(is_told) {
            print!("{leak}");
            return ExitCode::SUCCESS;
        }
        gosched::time::sleep(Duration::from_millis(10));
    }
    ExitCode::FAILURE
}
