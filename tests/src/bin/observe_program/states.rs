//! Goroutines in every state, one function per state, and the ways to show them: `text`, `folded`,
//! `json`, `to`, `host`. A `HERE` comment marks the line where a function waits.

use gosched::sync::{Barrier, Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use gosched::{Builder, Select, blocking, chan, go, lock_os_thread, park, runtime, select, time};
use gosched_tests::dumps;
use gosched_tests::wait::{LIMIT, until};
use std::hint::black_box;
use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

#[inline(never)]
fn chan_receive() {
    let (_sender, receiver) = chan::<u64>(0);
    black_box(receiver.recv()).unwrap(); // HERE chan_receive
}

#[inline(never)]
fn chan_send() {
    let (sender, _receiver) = chan::<u64>(0);
    black_box(sender.send(1)).unwrap(); // HERE chan_send
}

#[inline(never)]
fn never_receive() {
    let receiver = chan::never::<u64>();
    black_box(receiver.recv()).unwrap(); // HERE never_receive
}

#[inline(never)]
fn selects() {
    let (sender, receiver) = chan::<u64>(0);
    let (other, _kept) = chan::<u64>(0);
    black_box(select! { recv(receiver) -> _ => 1, send(other, 1) -> _ => 2 }); // HERE selects
    drop(sender);
}

#[inline(never)]
fn selects_nothing() {
    black_box(Select::<u64>::new().wait()); // HERE selects_nothing
}

#[inline(never)]
fn sleeps() {
    time::sleep(HOUR); // HERE sleeps
    black_box(());
}

#[inline(never)]
fn locks_mutex(lock: Arc<Mutex<u64>>) {
    *black_box(lock.lock()) += 1; // HERE locks_mutex
}

#[inline(never)]
fn locks_read(lock: Arc<RwLock<u64>>) {
    black_box(*lock.read()); // HERE locks_read
}

#[inline(never)]
fn locks_write(lock: Arc<RwLock<u64>>) {
    *black_box(lock.write()) += 1; // HERE locks_write
}

#[inline(never)]
fn waits_cond() {
    let (lock, condition) = (Mutex::new(0), Condvar::new());
    let guard = lock.lock();
    drop(black_box(condition.wait(guard))); // HERE waits_cond
}

#[inline(never)]
fn waits_group(group: WaitGroup) {
    group.wait(); // HERE waits_group
    black_box(&group);
}

#[inline(never)]
fn waits_io() {
    let (mut reader, _writer) = gosched::io::pipe().unwrap();
    black_box(reader.read(&mut [0])).unwrap(); // HERE waits_io
}

#[inline(never)]
fn in_syscall(reader: PipeReader) {
    black_box(blocking(|| raw_read(&reader))); // HERE in_syscall
}

#[inline(never)]
fn raw_read(reader: &PipeReader) -> isize {
    let mut byte = [0u8];
    // SAFETY: the buffer is valid for writes of one byte.
    unsafe { libc::read(reader.as_raw_fd(), byte.as_mut_ptr().cast(), 1) }
}

#[inline(never)]
fn locked() {
    lock_os_thread();
    let (_sender, receiver) = chan::<u64>(0);
    black_box(receiver.recv()).unwrap(); // HERE locked
}

#[inline(never)]
fn labelled() {
    let (_sender, receiver) = chan::<u64>(0);
    black_box(receiver.recv()).unwrap(); // HERE labelled
}

#[inline(never)]
fn named() {
    let (_sender, receiver) = chan::<u64>(0);
    black_box(receiver.recv()).unwrap(); // HERE named
}

#[inline(never)]
fn parks() {
    park(); // HERE parks
    black_box(());
}

#[inline(never)]
fn joins() {
    let parked = go(parks); // HERE parks_parent
    black_box(parked.join()).unwrap(); // HERE joins
}

#[inline(never)]
fn acquires() {
    let semaphore = Semaphore::new(1);
    let _held = semaphore.acquire(1);
    drop(black_box(semaphore.acquire(1))); // HERE acquires
}

#[inline(never)]
fn meets() {
    let barrier = Barrier::new(2);
    black_box(barrier.wait()); // HERE meets
}

#[inline(never)]
fn blocks_on() {
    gosched::block_on(std::future::pending::<()>()); // HERE blocks_on
    black_box(());
}

/// Names of all functions in which a goroutine waits.
const WAITING: [&str; 21] = [
    "chan_receive",
    "chan_send",
    "never_receive",
    "selects",
    "selects_nothing",
    "sleeps",
    "locks_mutex",
    "locks_read",
    "locks_write",
    "waits_cond",
    "waits_group",
    "waits_io",
    "in_syscall",
    "locked",
    "labelled",
    "named",
    "parks",
    "joins",
    "acquires",
    "meets",
    "blocks_on",
];

/// Starts a goroutine for each of these functions.
#[inline(never)]
fn start() {
    let mutex = Arc::new(Mutex::new(0));
    let (read, written) = (Arc::new(RwLock::new(0)), Arc::new(RwLock::new(0)));
    std::mem::forget(mutex.lock());
    std::mem::forget(read.read());
    std::mem::forget(written.write());
    let group = WaitGroup::new();
    group.add(1);
    let (reader, writer) = std::io::pipe().unwrap();
    std::mem::forget(writer);
    go(chan_receive); // HERE start
    go(chan_send);
    go(never_receive);
    go(selects);
    go(selects_nothing);
    go(sleeps);
    go(move || locks_mutex(mutex));
    go(move || locks_read(written));
    go(move || locks_write(read));
    go(waits_cond);
    go(move || waits_group(group));
    go(waits_io);
    go(move || in_syscall(reader));
    go(locked);
    let builder = Builder::new().label("kind", "plain").label("with space", "a b");
    builder.go(labelled).unwrap();
    Builder::new().name("Ada").go(named).unwrap();
    go(joins);
    go(acquires);
    go(meets);
    go(blocks_on);
}

/// Returns whether a goroutine that is in its function has reached its wait.
fn waits(block: &dumps::DumpedGoroutine, name: &str) -> bool {
    match block.state.as_str() {
        "running" | "runnable" | "preempted" => false,
        "syscall" => name == "in_syscall",
        _ => true,
    }
}

/// Waits until all goroutines have reached their waits.
fn settle() {
    let deadline = Instant::now() + LIMIT;
    loop {
        let text = runtime::dump();
        let blocks = dumps::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let is_there = |name: &&str| {
            let block = blocks.iter().find(|block| block.frame(name).is_some());
            block.is_some_and(|block| waits(block, name))
        };
        let Some(name) = WAITING.iter().find(|name| !is_there(name)) else { return };
        assert!(Instant::now() < deadline, "{name} does not wait\n{text}");
        gosched::yield_now();
    }
}

/// Separator between two dumps.
const BORDER: &str = "\n=====\n";

#[gosched::main(alloc = off)]
pub(crate) fn program() {
    start();
    settle();
    match std::env::args().nth(2).as_deref() {
        Some("text") => print!("{}", shows()),
        Some("folded") => {
            (0..4).for_each(|_| drop(go(chan_receive)));
            until("five receive", || {
                let blocks = dumps::parse(&runtime::dump()).unwrap();
                let receives = |block: &&dumps::DumpedGoroutine| {
                    block.frame("chan_receive").is_some() && block.state == "chan receive"
                };
                blocks.iter().filter(receives).count() == 5
            });
            print!("{}", runtime::dump_folded());
        }
        Some("json") => print!("{}{BORDER}{}", runtime::dump(), runtime::dump_json()),
        Some("to") => {
            let mut text = Vec::new();
            runtime::dump_to(&mut text).unwrap();
            print!("{}{BORDER}{}", runtime::dump(), String::from_utf8(text).unwrap());
        }
        Some("host") => print!("{}", gosched::host(runtime::dump)),
        way => panic!("no such way: {way:?}"),
    }
}

/// Takes the dump in a frame of its own.
#[inline(never)]
fn shows() -> String {
    black_box(runtime::dump()) // HERE shows
}
