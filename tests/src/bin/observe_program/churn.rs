//! Dumps of goroutines that start, move and end at full speed. Each function in a dump must be one
//! that the goroutine can call, and each caller one that can call it.

use gosched::{Builder, chan, runtime, time, yield_now};
use gosched_tests::dumps::{self, DumpedGoroutine};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Maximum number of goroutines alive at a time, without the spawners.
const ALIVE: usize = 24;

static STOP: AtomicBool = AtomicBool::new(false);
static SINK: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn short_root() {
    short_leaf();
    SINK.fetch_add(1, SeqCst);
}

#[inline(never)]
fn short_leaf() {
    SINK.fetch_add(black_box(2), SeqCst);
}

#[inline(never)]
fn deep_root() {
    SINK.fetch_add(deep_step(20), SeqCst);
}

#[inline(never)]
fn deep_step(depth: u64) -> u64 {
    let room = black_box([depth; 16]);
    let below = if depth == 0 { deep_leaf() } else { deep_step(depth - 1) };
    black_box(below + room[5])
}

#[inline(never)]
fn deep_leaf() -> u64 {
    yield_now();
    black_box(1)
}

#[inline(never)]
fn chan_root() {
    let (sender, receiver) = chan::<u64>(0);
    let other = Builder::new().name("sender").go(move || sender_root(&sender)).unwrap();
    while let Ok(value) = chan_take(&receiver) {
        SINK.fetch_add(value, SeqCst);
    }
    other.join().unwrap();
}

#[inline(never)]
fn chan_take(receiver: &chan::Receiver<u64>) -> Result<u64, chan::RecvError> {
    black_box(receiver.recv())
}

#[inline(never)]
fn sender_root(sender: &chan::Sender<u64>) {
    for value in 0..3 {
        sender_give(sender, value);
    }
    sender.close();
}

#[inline(never)]
fn sender_give(sender: &chan::Sender<u64>, value: u64) {
    black_box(sender.send(value)).unwrap();
}

#[inline(never)]
fn sleep_root() {
    sleep_nap();
    SINK.fetch_add(1, SeqCst);
}

#[inline(never)]
fn sleep_nap() {
    time::sleep(Duration::from_micros(500));
    black_box(());
}

#[inline(never)]
fn work_root() {
    let sum = work_step(20_000);
    SINK.fetch_add(sum, SeqCst);
}

#[inline(never)]
fn work_step(rounds: u64) -> u64 {
    let mut sum = 1u64;
    for round in 0..black_box(rounds) {
        sum = sum.wrapping_mul(31).wrapping_add(round);
    }
    black_box(sum)
}

#[inline(never)]
fn endless_root() {
    while !STOP.load(SeqCst) {
        SINK.fetch_add(endless_step(), SeqCst);
    }
}

#[inline(never)]
fn endless_step() -> u64 {
    work_step(black_box(100))
}

/// A kind of goroutine: its name, its root function, and its possible calls as pairs of caller and
/// callee.
struct GoroutineKind {
    name: &'static str,
    root: fn(),
    calls: &'static [(&'static str, &'static str)],
}

const GOROUTINE_KINDS: [GoroutineKind; 6] = [
    GoroutineKind { name: "short", root: short_root, calls: &[("short_root", "short_leaf")] },
    GoroutineKind {
        name: "deep",
        root: deep_root,
        calls: &[
            ("deep_root", "deep_step"),
            ("deep_step", "deep_step"),
            ("deep_step", "deep_leaf"),
        ],
    },
    GoroutineKind { name: "chan", root: chan_root, calls: &[("chan_root", "chan_take")] },
    GoroutineKind { name: "sleep", root: sleep_root, calls: &[("sleep_root", "sleep_nap")] },
    GoroutineKind { name: "work", root: work_root, calls: &[("work_root", "work_step")] },
    GoroutineKind {
        name: "endless",
        root: endless_root,
        calls: &[("endless_root", "endless_step"), ("endless_step", "work_step")],
    },
];

/// The kind that `chan_root` starts, not a spawner.
const SENDER: GoroutineKind =
    GoroutineKind { name: "sender", root: short_root, calls: &[("sender_root", "sender_give")] };

const SPAWNER: GoroutineKind = GoroutineKind {
    name: "spawner",
    root: spawner_root,
    calls: &[("spawner_root", "spawner_start"), ("spawner_start", "spawner_waits")],
};

static BORN: AtomicUsize = AtomicUsize::new(0);
static GONE: AtomicUsize = AtomicUsize::new(0);

#[inline(never)]
fn spawner_root() {
    while !STOP.load(SeqCst) {
        spawner_start();
    }
}

#[inline(never)]
fn spawner_start() {
    spawner_waits();
    let nature = &GOROUTINE_KINDS[BORN.fetch_add(1, SeqCst) % 5];
    let root = nature.root;
    let work = move || {
        root();
        GONE.fetch_add(1, SeqCst);
    };
    drop(Builder::new().name(nature.name).go(work).unwrap());
}

/// Waits until at most [`ALIVE`] goroutines are alive.
#[inline(never)]
fn spawner_waits() {
    while BORN.load(SeqCst).saturating_sub(GONE.load(SeqCst)) > ALIVE {
        yield_now();
    }
}

/// Returns the function of this module that a frame belongs to. A closure belongs to its enclosing
/// function.
fn own(function: &str) -> Option<&str> {
    let rest = function.strip_prefix("observe_program::churn::")?;
    rest.split("::").next()
}

/// Returns whether a function is not part of these programs, but of the library, std, or the
/// system. A C function has no path; a function without a name is shown as its address.
pub(crate) fn foreign(function: &str) -> bool {
    const CRATES: [&str; 13] = [
        "gosched",
        "gosched_fiber",
        "gosched_alloc",
        "std",
        "core",
        "alloc",
        "backtrace",
        "addr2line",
        "gimli",
        "object",
        "libc",
        "compiler_builtins",
        "__rustc",
    ];
    let in_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = function.split(|c: char| !in_name(c));
    let mut roots = paths.filter_map(|path| path.split_once("::")).map(|(root, _)| root);
    // Later paths are generic arguments, which may be types of this module.
    let first = roots.find(|root| !root.is_empty());
    function.starts_with('<') || first.is_none_or(|root| CRATES.contains(&root))
}

/// Returns a description of what is wrong with a goroutine's frames, if anything.
fn wrong(block: &DumpedGoroutine) -> Option<String> {
    let name = block.label("name").unwrap_or("main");
    let nature =
        GOROUTINE_KINDS.iter().chain([&SENDER, &SPAWNER]).find(|nature| nature.name == name);
    let own_frames: Vec<&str> =
        block.frames.iter().filter_map(|frame| own(&frame.function)).collect();
    let stranger = block
        .frames
        .iter()
        .find(|frame| own(&frame.function).is_none() && !foreign(&frame.function));
    if let Some(stranger) = stranger {
        return Some(format!("a frame of nobody: {}", stranger.function));
    }
    let Some(nature) = nature else {
        let known = own_frames.iter().all(|name| *name == "program" || *name == "look");
        return (!known).then(|| format!("main in {own_frames:?}"));
    };
    let known = |name: &str| {
        // The frame of a goroutine's closure has the name of the function that contains the
        // closure.
        name == "spawner_start"
            || name == "chan_root"
            || name == "program"
            || nature.calls.iter().any(|(from, to)| *from == name || *to == name)
    };
    if let Some(stray) = own_frames.iter().find(|name| !known(name)) {
        return Some(format!("{name} in {stray}"));
    }
    // Outermost first, without the closure that was started.
    let calls: Vec<&str> = own_frames.iter().rev().copied().collect();
    let starters = ["spawner_start", "chan_root", "program"];
    let first = calls.first().is_some_and(|first| {
        let started_by = starters.contains(first);
        let root = nature.calls.first().is_some_and(|(root, _)| root == first);
        started_by && !root
    });
    let calls = &calls[usize::from(first)..];
    let broken = calls.windows(2).find(|pair| {
        let [from, to] = pair else { return false };
        !nature.calls.contains(&(from, to))
    });
    if let Some(pair) = broken {
        return Some(format!("{name}: {} calls {}", pair[0], pair[1]));
    }
    let waits = !matches!(block.state.as_str(), "running" | "runnable" | "preempted" | "syscall");
    (waits && calls.is_empty()).then(|| format!("{name} waits in no function of its own"))
}

#[inline(never)]
fn look() -> usize {
    let text = runtime::dump();
    let blocks = dumps::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    for block in &blocks {
        if let Some(what) = wrong(block) {
            panic!("a frame that cannot be, in goroutine {}: {what}\n{text}", block.id);
        }
    }
    blocks.iter().filter(|block| !block.frames.is_empty()).count()
}

pub(crate) fn program() {
    let looks = std::env::args().nth(2).map_or(1000, |number| number.parse().unwrap());
    // The first dump reads the names of functions, before other goroutines keep the CPUs busy.
    black_box(runtime::dump());
    let builder = |name: &str| Builder::new().name(name);
    let mut others: Vec<_> = (0..2).map(|_| builder("spawner").go(spawner_root).unwrap()).collect();
    others.push(builder("endless").go(endless_root).unwrap());
    let (mut seen, mut looked) = (0, 0);
    // A running goroutine whose thread has no CPU may not answer a dump.
    while looked < looks || seen <= 2 * looks {
        looked += 1;
        // Goroutines start and end between two dumps.
        let gone = GONE.load(SeqCst);
        while GONE.load(SeqCst) < gone + 3 {
            yield_now();
        }
        seen += look();
    }
    STOP.store(true, SeqCst);
    others.into_iter().for_each(|other| other.join().unwrap());
    let (born, gone) = (BORN.load(SeqCst), GONE.load(SeqCst));
    println!("looks {looked} seen {seen} born {born} gone {gone}");
}

#[inline(never)]
fn ping_root(to: &chan::Sender<u64>, from: &chan::Receiver<u64>) {
    while !STOP.load(SeqCst) {
        to.send(1).unwrap();
        SINK.fetch_add(from.recv().unwrap(), SeqCst);
    }
}

#[inline(never)]
fn pong_root(from: &chan::Receiver<u64>, to: &chan::Sender<u64>) {
    while let Ok(value) = from.recv() {
        if to.send(value).is_err() {
            return;
        }
    }
}

/// Two goroutines switch to each other all the time, usually on one M. No dump shows a goroutine
/// with frames of its partner.
pub(crate) fn pair() {
    let looks = std::env::args().nth(2).map_or(1000, |number| number.parse().unwrap());
    let (ping, there) = chan::<u64>(0);
    let (pong, back) = chan::<u64>(0);
    let named = |name: &str| Builder::new().name(name);
    let first = named("ping").go(move || ping_root(&ping, &back)).unwrap();
    let second = named("pong").go(move || pong_root(&there, &pong)).unwrap();
    let (mut seen, mut running, mut looked) = (0, 0, 0);
    // A running goroutine whose thread has no CPU may not answer a dump.
    while looked < looks || seen <= looks {
        looked += 1;
        let text = runtime::dump();
        let blocks = dumps::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        for (name, own, other) in
            [("ping", "ping_root", "pong_root"), ("pong", "pong_root", "ping_root")]
        {
            let Some(block) = blocks.iter().find(|block| block.label("name") == Some(name)) else {
                panic!("{name} is not there\n{text}")
            };
            assert!(block.frame(other).is_none(), "a frame that cannot be, in {name}\n{text}");
            seen += usize::from(block.frame(own).is_some());
            running += usize::from(block.state == "running");
        }
    }
    STOP.store(true, SeqCst);
    first.join().unwrap();
    second.join().unwrap();
    println!("looks {looked} seen {seen} running {running}");
}
