//! Programs that crash while they exit normally. They exit when standard input ends, and the test
//! closes their input once the first words of the crash report have appeared.

use gosched::runtime::{self, PanicPolicy, leak_hints, set_panic_policy};
use gosched::{chan, go};
use gosched_tests::wait::until;
use std::hint::black_box;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

/// Number of waiting goroutines. Showing them takes the report a while.
const BYSTANDERS: usize = 200;

#[inline(never)]
fn bystander(receiver: &chan::Receiver<u64>) {
    black_box(receiver.recv()).unwrap();
}

#[inline(never)]
#[expect(unconditional_recursion, reason = "that is the point")]
fn overflows(depth: u64) -> u64 {
    let room = black_box([depth; 32]);
    overflows(depth + 1) + room[3]
}

/// The stack often overflows inside malloc, with the allocator's lock held.
#[inline(never)]
#[expect(unconditional_recursion, reason = "that is the point")]
fn allocates(depth: usize) -> usize {
    let block = black_box(vec![0u8; 40_000 + depth % 90_000]);
    allocates(depth + 1) + block.len()
}

#[inline(never)]
fn panics() {
    panic!("as asked");
}

fn dies(how: &str) {
    set_panic_policy(PanicPolicy::Abort);
    let (sender, receiver) = chan::<u64>(0);
    for _ in 0..BYSTANDERS {
        let receiver = receiver.clone();
        go(move || bystander(&receiver));
    }
    until("all bystanders wait", || {
        let leaks = leak_hints(Duration::ZERO).leaks;
        leaks.iter().map(|leak| leak.goroutines.len()).sum::<usize>() == BYSTANDERS
    });
    println!("ready");
    match how {
        "overflow" => drop(go(|| black_box(overflows(0)))),
        "overflow in malloc" => drop(go(|| black_box(allocates(0)))),
        "panic" => drop(go(panics)),
        "threads" => drop(go(|| runtime::set_max_threads(1))),
        "quit" => {}
        how => panic!("cannot die by {how}"),
    }
    gosched::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    std::mem::forget(sender);
}

#[gosched::main(alloc = off)]
fn main_dies() {
    dies(&how());
    if std::env::args().nth(3).as_deref() == Some("exits") {
        std::process::exit(0);
    }
}

fn how() -> String {
    std::env::args().nth(2).unwrap_or_default()
}

pub(crate) fn program() -> ExitCode {
    match std::env::args().nth(3).as_deref() {
        Some("is run") => {
            gosched::run(|| dies(&how()));
            ExitCode::SUCCESS
        }
        _ => main_dies(),
    }
}
