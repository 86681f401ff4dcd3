//! Whole programs for the suites `alloc_edge_cases` and `sched_idle`; the first argument selects
//! the program. Their global allocator is the allocation cache in front of [`Counting`], as the
//! `alloc` option of `#[gosched::main]` sets it.

use gosched::alloc::stats;
use gosched::{current, go, park, yield_now};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::io::Read;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

static CHUNKS: AtomicUsize = AtomicUsize::new(0);
static CHUNKS_BACK: AtomicUsize = AtomicUsize::new(0);
static OTHERS: AtomicUsize = AtomicUsize::new(0);
static AS_GOROUTINE: AtomicUsize = AtomicUsize::new(0);
static EARLY: AtomicUsize = AtomicUsize::new(0);
static LATE: AtomicBool = AtomicBool::new(false);

const MIB: usize = 1 << 20;

/// The system's allocator, with counters of its calls.
struct Counting;

fn is_chunk(layout: Layout) -> bool {
    layout.align() == MIB && layout.size().is_multiple_of(MIB)
}

// SAFETY: memory comes from the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if LATE.load(SeqCst) && current().is_some() && cfg!(not(feature = "threads")) {
            AS_GOROUTINE.fetch_add(1, SeqCst);
        }
        if is_chunk(layout) {
            CHUNKS.fetch_add(layout.size() / MIB, SeqCst)
        } else {
            OTHERS.fetch_add(1, SeqCst)
        };
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if is_chunk(layout) {
            CHUNKS_BACK.fetch_add(1, SeqCst);
        }
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(start, layout) }
    }
}

/// A function that the loader calls before any other code of this program.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_ALL: extern "C" fn() = {
    extern "C" fn before_all() {
        let text: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        EARLY.store(black_box(text).concat().len(), SeqCst);
    }
    before_all
};

/// Seconds after which the program counts as hung: `gosched_tests::wait::CHILD_LIMIT`.
const LIMIT_SECONDS: u32 = 300;

fn main() -> ExitCode {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(LIMIT_SECONDS) };
    match std::env::args().nth(1).as_deref() {
        Some("counts") => counts(),
        Some("off") => off(),
        Some("idle") => idle(),
        other => panic!("no program {other:?}"),
    }
}

/// Goroutines allocate many chunks of small blocks that are in use at the same time.
fn many_blocks() {
    let parts: Vec<_> = (0..100)
        .map(|each| {
            go(move || {
                let part: Vec<Box<[usize; 8]>> = (0..1000).map(|_| Box::new([each; 8])).collect();
                yield_now();
                part
            })
        })
        .collect();
    let parts: Vec<_> = parts.into_iter().map(|part| part.join().unwrap()).collect();
    for (each, part) in parts.into_iter().enumerate() {
        assert!(part.into_iter().all(|block| *block == [each; 8]));
    }
}

/// Allocates in an `atexit` handler.
extern "C" fn at_exit() {
    let text: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
    assert_eq!(black_box(text)[999], "999");
    println!("at exit");
}

#[gosched::main(procs = 4, alloc = Counting)]
fn counts() {
    LATE.store(true, SeqCst);
    assert_eq!(EARLY.load(SeqCst), 2890, "before main");
    // SAFETY: the handler is a function without arguments.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    many_blocks();
    let (chunks, others) = (CHUNKS.load(SeqCst), OTHERS.load(SeqCst));
    assert!(chunks >= 6, "{chunks} for 6.4 MB");
    assert_eq!(stats().reserved, chunks * MIB);
    many_blocks();
    assert!(CHUNKS.load(SeqCst) <= chunks + 8, "those of the first round are used again");
    let before = OTHERS.load(SeqCst);
    drop(black_box(vec![1u8; 100_000]));
    assert!(OTHERS.load(SeqCst) > before, "a large block");
    assert!(others < 10_000, "{others} large blocks");
    gosched::alloc::release_memory();
    assert_eq!(CHUNKS_BACK.load(SeqCst), 0);
    assert_eq!(AS_GOROUTINE.load(SeqCst), 0);
    println!("counted");
}

/// Has the same global allocator, because the process has only one, and installs none.
#[gosched::main(alloc = off)]
fn off() {
    many_blocks();
    assert!(CHUNKS.load(SeqCst) > 0);
    println!("off");
}

/// Allocates 200 MB and frees it such that much of it is not returned to the system at once. Then
/// waits without work until the parent process writes to standard input.
#[gosched::main(procs = 4, alloc = off)]
fn idle() {
    let parts: Vec<_> = (0..200).map(|_| go(|| vec![Box::new([1u8; 1000]); 1000])).collect();
    let mut blocks: Vec<_> = parts.into_iter().flat_map(|part| part.join().unwrap()).collect();
    for at in 0..blocks.len() {
        blocks.swap(at, at * 7919 % 200_000);
    }
    while !blocks.is_empty() {
        let part = blocks.split_off(blocks.len() - 10_000);
        go(move || drop(part)).join().unwrap();
    }
    let me = current().unwrap();
    std::thread::spawn(move || {
        println!("idle {}", stats().in_use + stats().warm);
        let _ = std::io::stdin().read(&mut [0]);
        me.unpark();
    });
    park();
    many_blocks();
    println!("works");
}
