//! Goroutines with stacks larger than what a dump copies at once. Whatever such a goroutine does,
//! dumps show both ends of its stack and the number of frames between.

use gosched::{Builder, JoinHandle, blocking, chan, runtime, yield_now};
use gosched_tests::dumps::{self, DumpedGoroutine};
use gosched_tests::wait::LIMIT;
use std::hint::black_box;
use std::io::{PipeReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

const DEPTH: usize = 2000;
/// Minimum size of a frame, in bytes.
const FRAME: usize = 1 << 10;

static STARTED: AtomicUsize = AtomicUsize::new(0);

#[inline(never)]
fn deep_root(leaf: &mut dyn FnMut()) {
    deep_step(DEPTH, leaf);
    black_box(());
}

#[inline(never)]
fn deep_step(depth: usize, leaf: &mut dyn FnMut()) -> u8 {
    let room = black_box([depth as u8; FRAME]);
    match depth {
        1 => leaf(),
        _ => _ = deep_step(depth - 1, leaf),
    }
    black_box(room[depth % FRAME])
}

fn start(name: &str, mut leaf: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let mut body = move || {
        STARTED.fetch_add(1, SeqCst);
        leaf();
    };
    Builder::new().name(name).stack_size(8 << 20).go(move || deep_root(&mut body)).unwrap()
}

fn read_one(mut pipe: &PipeReader) {
    let _ = pipe.read(&mut [0]);
}

/// Returns the number of elided frames.
fn elided(text: &str, id: u64) -> Option<usize> {
    let header = format!("goroutine {id} [");
    let block = text.split("\n\n").find(|block| block.starts_with(&header))?;
    let line = block.lines().find(|line| line.ends_with(" frames elided..."))?;
    line.strip_prefix("...")?.split(' ').next()?.parse().ok()
}

fn is_whole(text: &str, block: &DumpedGoroutine) -> bool {
    let steps = block.frames.iter().filter(|frame| frame.function.ends_with("deep_step")).count();
    let is_rooted = block.frames.iter().any(|frame| frame.function.ends_with("deep_root"));
    // Only steps are elided: there are more steps than either end shows.
    is_rooted && elided(text, block.id).is_some_and(|elided| elided + steps == DEPTH)
}

pub(crate) fn program() {
    let stop = Arc::new(AtomicBool::new(false));
    let (tx, rx) = chan::<()>(0);
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = Arc::new(reader);
    let (of_marked, of_unmarked, of_spins) = (reader.clone(), reader, stop.clone());
    let all = [
        start("parks", move || _ = rx.recv()),
        start("marked", move || blocking(|| read_one(&of_marked))),
        start("unmarked", move || read_one(&of_unmarked)),
        start("spins", move || while !of_spins.load(SeqCst) {}),
    ];
    while STARTED.load(SeqCst) < all.len() {
        yield_now();
    }
    let deadline = Instant::now() + LIMIT;
    // Not always in the same dump: a thread without a CPU does not answer.
    let mut missing = vec!["parks", "marked", "unmarked", "spins"];
    while !missing.is_empty() {
        let text = runtime::dump();
        let blocks = dumps::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        missing.retain(|name| {
            let mut named = blocks.iter().filter(|block| block.label("name") == Some(name));
            !named.next().is_some_and(|block| is_whole(&text, block))
        });
        assert!(Instant::now() < deadline, "{missing:?} are not whole\n{text}");
        yield_now();
    }
    stop.store(true, SeqCst);
    drop((tx, writer));
    all.into_iter().for_each(|one| one.join().unwrap());
    println!("whole");
}
