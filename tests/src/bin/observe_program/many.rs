//! Dumps of many goroutines, of goroutines that compute, of goroutines that never ran, and by
//! several callers at once.

use gosched::sync::WaitGroup;
use gosched::{__rules as rules, Builder, chan, go, runtime};
use gosched_tests::dumps::{self, DumpedGoroutine};
use gosched_tests::wait::until;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Number of goroutines that are about to wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);

fn parsed(text: &str) -> Vec<DumpedGoroutine> {
    dumps::parse(text).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// Returns the number of goroutines that wait in a channel receive, with or without minutes.
fn count_receiving(text: &str) -> usize {
    text.matches(" [chan receive").count()
}

/// Returns the second argument as a number.
fn number() -> usize {
    std::env::args().nth(2).expect("a number").parse().expect("a number")
}

#[inline(never)]
fn one_of_many(receiver: chan::Receiver<u64>) {
    WAITING.fetch_add(1, SeqCst);
    black_box(receiver.recv()).unwrap_err();
}

#[inline(never)]
fn one_of_few(receiver: chan::Receiver<u64>) {
    WAITING.fetch_add(1, SeqCst);
    black_box(receiver.recv()).unwrap_err();
}

/// All three kinds of dump show each of many goroutines once.
pub(crate) fn waiting() {
    let many = number();
    let (sender, receiver) = chan::<u64>(0);
    let start = |i: usize| {
        let receiver = receiver.clone();
        match i % 100 {
            0 => go(move || one_of_few(receiver)),
            _ => go(move || one_of_many(receiver)),
        }
    };
    let all: Vec<_> = (0..many).map(start).collect();
    // A dump of many goroutines takes long: after this wait, one or two dumps are enough.
    until("all have started", || WAITING.load(SeqCst) == many);
    until("all wait", || count_receiving(&runtime::dump()) == many);

    let (goroutines, frames) = rules::walk_all();
    assert!(goroutines == many + 1 && frames > many, "{goroutines} goroutines, {frames} frames");
    let text = runtime::dump();
    let blocks = parsed(&text);
    let ids: BTreeSet<u64> = blocks.iter().map(|block| block.id).collect();
    assert_eq!(ids.len(), blocks.len(), "each is shown once");
    assert!(all.iter().all(|goroutine| ids.contains(&goroutine.id().get())), "all are shown");
    let sorted = blocks[1..].is_sorted_by_key(|block| block.id);
    assert!(sorted, "behind the caller in the order of their ids");
    let counts = dumps::count(&blocks, &["one_of_few", "one_of_many"]);
    assert_eq!(counts["one_of_few"], many / 100);
    assert_eq!(counts["one_of_many"], many - many / 100);

    let folded = runtime::dump_folded();
    let (total, stacks) =
        dumps::parse_folded(&folded).unwrap_or_else(|why| panic!("{why}\n{folded}"));
    assert_eq!(total, stacks.iter().map(|stack| stack.count).sum::<usize>());
    assert_eq!(total, runtime::num_goroutines());
    let count = |name: &str| {
        let of: Vec<usize> = stacks.iter().filter(|s| s.has(name)).map(|s| s.count).collect();
        assert_eq!(of.len(), 1, "equal stacks of {name} are one: {of:?}");
        of[0]
    };
    assert_eq!(count("one_of_few"), many / 100);
    assert_eq!(count("one_of_many"), many - many / 100);
    assert!(stacks.is_sorted_by(|a, b| a.count >= b.count), "most first");

    let json = runtime::dump_json();
    let json = gosched_tests::json::Json::parse(&json).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(json.get("goroutines").list().len(), blocks.len());
    drop(sender);
    all.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    println!("all of them");
}

static STOP: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicUsize = AtomicUsize::new(0);
static SINK: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn spins_hard() {
    STARTED.fetch_add(1, SeqCst);
    let mut count = 0u64;
    // In a release build, this loop contains no call.
    while !STOP.load(SeqCst) {
        count = count.wrapping_mul(3).wrapping_add(1);
    }
    SINK.fetch_add(count, SeqCst);
}

/// Three times as many goroutines as there are Ps compute; each is running or was preempted. Takes
/// dumps until each goroutine was shown with its function as often as the argument says. A dump may
/// show some goroutines without it, since a thread without a CPU does not answer. The last line is
/// how often goroutines were shown, and how often with their function.
pub(crate) fn spinners() {
    let wanted = number();
    let count = 3 * runtime::procs();
    let all: Vec<_> = (0..count).map(|_| go(spins_hard)).collect();
    let ids: BTreeSet<u64> = all.iter().map(|goroutine| goroutine.id().get()).collect();
    until("all have started", || STARTED.load(SeqCst) == count);
    let mut states = BTreeSet::new();
    let mut seen: BTreeMap<u64, usize> = ids.iter().map(|id| (*id, 0)).collect();
    let mut looks = 0;
    until("all were shown with their functions", || {
        let text = runtime::dump();
        let blocks = parsed(&text);
        let ours: Vec<_> = blocks.iter().filter(|block| ids.contains(&block.id)).collect();
        assert_eq!(ours.len(), count, "all are there\n{text}");
        for block in ours {
            let known = matches!(block.state.as_str(), "running" | "runnable" | "preempted");
            assert!(known, "{block:?}");
            states.insert(block.state.clone());
            *seen.get_mut(&block.id).unwrap() += usize::from(block.frame("spins_hard").is_some());
        }
        looks += 1;
        // The caller runs on one P, and spinners run on the other Ps.
        let has_running = runtime::procs() == 1 || states.contains("running");
        has_running && seen.values().all(|times| *times >= wanted)
    });
    STOP.store(true, SeqCst);
    all.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    println!("states {states:?}");
    println!("wanted {} seen {}", looks * count, seen.values().sum::<usize>());
}

#[inline(never)]
fn not_yet() {
    SINK.fetch_add(1, SeqCst);
}

/// One P: a goroutine that was just started cannot have run unless the caller was preempted.
pub(crate) fn never_started() {
    runtime::set_procs(1);
    until("one that has not run is seen", || {
        let before = SINK.load(SeqCst);
        let builder = Builder::new().name("not yet");
        let goroutine = builder.go(not_yet).unwrap();
        let text = runtime::dump();
        let ran = SINK.load(SeqCst) != before;
        let blocks = parsed(&text);
        let block = blocks.iter().find(|block| block.id == goroutine.id().get());
        let shown = !ran && {
            let block = block.unwrap_or_else(|| panic!("it is not shown\n{text}"));
            assert_eq!(block.state, "runnable", "{text}");
            assert_eq!(block.label("name"), Some("not yet"), "{text}");
            let creator = block.creator.as_ref().unwrap_or_else(|| panic!("{text}"));
            assert_eq!(Some(creator.goroutine), gosched::id().map(gosched::GoId::get), "{text}");
            assert!(creator.place.0.ends_with("many.rs"), "{text}");
            true
        };
        goroutine.join().unwrap();
        shown
    });
    println!("runnable");
}

/// Goroutines and threads take dumps at the same time, each as many as the argument says: every
/// dump is complete.
pub(crate) fn at_once() {
    let looks_of_each = number();
    let (sender, receiver) = chan::<u64>(0);
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let receiver = receiver.clone();
            go(move || one_of_many(receiver))
        })
        .collect();
    let ids: Arc<BTreeSet<u64>> =
        Arc::new(waiting.iter().map(|goroutine| goroutine.id().get()).collect());
    until("all wait", || count_receiving(&runtime::dump()) >= 100);
    let group = WaitGroup::new();
    let looks = move |ids: &BTreeSet<u64>| {
        for _ in 0..looks_of_each {
            let blocks = parsed(&runtime::dump());
            let seen: BTreeSet<u64> = blocks.iter().map(|block| block.id).collect();
            assert_eq!(seen.len(), blocks.len(), "each is shown once");
            assert!(seen.is_superset(ids), "all are shown");
            dumps::parse_folded(&runtime::dump_folded()).unwrap();
        }
    };
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let mine = ids.clone();
            let ids = ids.clone();
            group.go(move || looks(&mine));
            std::thread::spawn(move || looks(&ids))
        })
        .collect();
    group.wait();
    gosched::blocking(|| threads.into_iter().for_each(|thread| thread.join().unwrap()));
    drop(sender);
    waiting.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    println!("at once");
}

#[inline(never)]
fn reads_for_long(pipe: std::io::PipeReader) {
    let read = gosched::blocking(|| (&pipe).read(&mut [0])).unwrap();
    assert_eq!(black_box(read), 0);
}

/// Two goroutines have waited for minutes by the accelerated clock of `c/hurry.c`. No timeouts are
/// used here.
pub(crate) fn minutes() {
    let (sender, receiver) = chan::<u64>(0);
    let waits = go(move || one_of_many(receiver));
    let (reader, writer) = std::io::pipe().unwrap();
    let reads = go(move || reads_for_long(reader));
    loop {
        let text = runtime::dump();
        let has_waited =
            |block: &&DumpedGoroutine| block.minutes.is_some_and(|minutes| minutes >= 2);
        if parsed(&text).iter().filter(has_waited).count() == 2 {
            print!("{text}\n=====\n{}", runtime::dump_json());
            break;
        }
        gosched::yield_now();
    }
    drop((sender, writer));
    waits.join().unwrap();
    reads.join().unwrap();
}

/// A thread that is not a goroutine takes a dump, so no goroutine in the dump is the caller.
pub(crate) fn from_a_thread() {
    let (sender, receiver) = chan::<u64>(0);
    let waits = go(move || one_of_many(receiver));
    let mut text = String::new();
    until("it waits", || {
        text = runtime::dump();
        count_receiving(&text) == 1
    });
    let blocks = parsed(&text);
    assert_eq!(blocks.len(), 1, "{text}");
    assert_eq!(blocks[0].id, waits.id().get(), "{text}");
    assert!(blocks[0].frame("one_of_many").is_some(), "{text}");
    assert_eq!(gosched::id(), None);
    drop(sender);
    waits.join().unwrap();
    println!("from a thread");
}

/// A few waiting goroutines and a dump, for other kinds of builds.
pub(crate) fn small() {
    let (sender, receiver) = chan::<u64>(0);
    for _ in 0..3 {
        let receiver = receiver.clone();
        go(move || one_of_few(receiver));
    }
    until("all wait", || count_receiving(&runtime::dump()) == 3);
    print!("{}", runtime::dump());
    drop(sender);
}
