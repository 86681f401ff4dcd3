//! Goroutines that wait, sleep, are locked to a thread and compute, until the input ends: the
//! counterpart of `tests/go/trace.go`. Then prints `sched_trace`.

use gosched::{Select, chan, go, lock_os_thread, runtime, time};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

static SINK: AtomicU64 = AtomicU64::new(0);

fn computes() {
    loop {
        SINK.fetch_add(1, Relaxed);
    }
}

fn locked() {
    lock_os_thread();
    chan::never::<u64>().recv().unwrap();
}

#[gosched::main(alloc = off)]
pub(crate) fn program() {
    let (_sender, receiver) = chan::<u64>(0);
    go(move || receiver.recv());
    go(|| Select::<u64>::new().wait());
    go(|| time::sleep(Duration::from_secs(3600)));
    go(locked);
    (0..4).for_each(|_| drop(go(computes)));
    let mut input = String::new();
    gosched::io::stdin().read_to_string(&mut input).unwrap();
    print!("{}", runtime::sched_trace());
}
