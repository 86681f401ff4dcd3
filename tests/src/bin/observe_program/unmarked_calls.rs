//! Unmarked calls: short calls in a row that a signal would interrupt, calls of threads that block
//! all signals, and the reported duration of a call.

use gosched::{Builder, go, runtime, yield_now};
use gosched_tests::dumps;
use gosched_tests::json::Json;
use gosched_tests::wait::{LIMIT, until};
use std::hint::black_box;
use std::io::{PipeReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

static STOP: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static EARLY: AtomicU64 = AtomicU64::new(0);
static STARTED: AtomicUsize = AtomicUsize::new(0);

fn sleeps_again_and_again() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
    while !STOP.load(SeqCst) {
        // SAFETY: the time is valid for reads; the remaining time is not requested.
        let result = unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
        CALLS.fetch_add(1, SeqCst);
        EARLY.fetch_add(u64::from(result != 0), SeqCst);
        (0..2000).for_each(|number| _ = black_box(number));
    }
}

/// Calls `looks` until it returns false. Returns how many sleeps were made meanwhile, how many of
/// them ended early, and how often `looks` returned true.
fn phase(mut looks: impl FnMut(u64) -> bool) -> (u64, u64, u64) {
    let (calls, early) = (CALLS.load(SeqCst), EARLY.load(SeqCst));
    let looked = (0..).find(|&number| !looks(number)).unwrap_or(0);
    (CALLS.load(SeqCst) - calls, EARLY.load(SeqCst) - early, looked)
}

/// Goroutines make short sleeps, first while the caller takes as many dumps as the argument says,
/// then without dumps. The sleeps continue in both phases.
pub(crate) fn sleeps() {
    let wanted: u64 = std::env::args().nth(2).expect("a number").parse().expect("a number");
    let sleepers = [go(sleeps_again_and_again), go(sleeps_again_and_again)];
    let before = CALLS.load(SeqCst);
    let start = Instant::now();
    let (calls, early, looks) = phase(|number| {
        black_box(runtime::dump());
        // On a busy machine sleeps may take longer than dumps.
        number < wanted || CALLS.load(SeqCst) == before
    });
    let took = start.elapsed();
    let (start, before) = (Instant::now(), CALLS.load(SeqCst));
    let (calls_alone, early_alone, _) = phase(|_| {
        std::thread::sleep(Duration::from_millis(1));
        start.elapsed() < took || CALLS.load(SeqCst) == before
    });
    STOP.store(true, SeqCst);
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    println!("looks {looks} calls {calls} early {early}");
    println!("alone {calls_alone} early_alone {early_alone}");
}

#[inline(never)]
fn reads_deaf(mut pipe: &PipeReader, hears: bool) {
    if !hears {
        block_all_signals();
    }
    STARTED.fetch_add(1, SeqCst);
    let _ = pipe.read(&mut [0]);
    black_box(());
}

fn block_all_signals() {
    // SAFETY: an all-zero set is valid.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours to write.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: a valid set; the old set is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
}

/// Threads that block all signals wait in a call that a signal would restart. With the argument
/// `hear`, the threads block no signals. Prints the shortest duration of a dump that shows all of
/// them, in microseconds.
pub(crate) fn deaf() {
    const COUNT: usize = 20;
    const LOOKS: usize = 5;
    let hear = std::env::args().nth(2).as_deref() == Some("hear");
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = Arc::new(reader);
    let start = |_| {
        let reader = reader.clone();
        Builder::new().name("deaf").go(move || reads_deaf(&reader, hear)).unwrap()
    };
    let all: Vec<_> = (0..COUNT).map(start).collect();
    while STARTED.load(SeqCst) < COUNT {
        yield_now();
    }
    let mut times = Vec::new();
    until("all are shown with their function", || {
        let looked = Instant::now();
        let text = runtime::dump();
        let took = looked.elapsed();
        let blocks = dumps::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let is_shown = |block: &&dumps::DumpedGoroutine| {
            block.state == "syscall" && block.frame("reads_deaf").is_some()
        };
        if blocks.iter().filter(is_shown).count() == COUNT {
            times.push(took);
        }
        times.len() == LOOKS
    });
    drop(writer);
    all.into_iter().for_each(|one| one.join().unwrap());
    println!("shown micros {}", times.into_iter().min().unwrap_or_default().as_micros());
}

#[inline(never)]
fn reads_unmarked(mut pipe: &PipeReader) {
    STARTED.fetch_add(1, SeqCst);
    let _ = pipe.read(&mut [0]);
    black_box(());
}

/// The reported duration of an unmarked call is the real one, or missing. Sysmon determines when
/// the call began, and does so inaccurately if it gets no CPU in time. Prints by how much the
/// reported duration exceeds the real one at most, in microseconds.
pub(crate) fn since() {
    let (reader, writer) = std::io::pipe().unwrap();
    // Read before the call begins.
    let start = Instant::now();
    let reads = go(move || reads_unmarked(&reader));
    let (mut last, mut excess) = (0, Duration::ZERO);
    while last < 300_000_000 {
        let json = runtime::dump_json();
        let longest = start.elapsed();
        let json = Json::parse(&json).unwrap_or_else(|why| panic!("{why}\n{json}"));
        let is_it = |one: &&Json| one.get("id").number() == Some(reads.id().get());
        let one = json.get("goroutines").list().iter().find(is_it).unwrap();
        let waiting = one.get("waiting_ns").number();
        // At first the goroutine still has its P, and its state is not `syscall`.
        if let Some(waiting) = waiting.filter(|_| one.get("state").text() == Some("syscall")) {
            assert!(waiting >= last, "{waiting} after {last}");
            excess = excess.max(Duration::from_nanos(waiting).saturating_sub(longest));
            last = waiting;
        }
        assert!(start.elapsed() < LIMIT, "{waiting:?}: {one:?}");
        gosched::time::sleep(Duration::from_millis(10));
    }
    drop(writer);
    reads.join().unwrap();
    println!("excess {}", excess.as_micros());
}
