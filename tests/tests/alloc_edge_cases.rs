//! The allocation cache in edge cases: destructors of thread-locals, forks, misuse that debug
//! builds detect, and the allocator that `#[gosched::main]` installs.

use gosched::alloc::{Alloc, stats};
use gosched::runtime::set_procs;
use gosched::{go, run, yield_now};
use gosched_tests::alloc_blocks::{BackingAlloc, Block, Random, SMALL, layout_of};
use gosched_tests::wait::LIMIT;
use gosched_tests::{c_thread, children};
use std::alloc::GlobalAlloc;
use std::ffi::c_void;
use std::hint::black_box;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

static BEHIND: BackingAlloc = BackingAlloc::new();
// SAFETY: memory — `BackingAlloc` allocates from the system.
static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };

fn take(seed: u64) -> Vec<Block> {
    let mut random = Random::new(seed);
    (0..50).map(|_| Block::new(&ALLOC, random.layout()).unwrap()).collect()
}

fn free(blocks: &mut Vec<Block>) {
    blocks.drain(..).for_each(|block| block.free(&ALLOC));
}

/// Allocates and frees, both with `ALLOC` and with the global allocator.
fn take_and_free(seed: u64) {
    let mut own = take(seed);
    let texts: Vec<String> = (0..50).map(|each| each.to_string()).collect();
    own.rotate_left(seed as usize % 50);
    free(&mut own);
    assert_eq!(black_box(texts)[49], "49");
}

fn succeeds(scenario: &str) {
    let output = children::run(scenario);
    let text = children::stderr(&output);
    assert!(output.status.success(), "{scenario}: {:?} {text}", output.status);
}

static DESTROYED: AtomicUsize = AtomicUsize::new(0);

/// A value whose destructor frees its blocks, and allocates and frees other blocks.
struct Keeps(Vec<Block>);

impl Drop for Keeps {
    fn drop(&mut self) {
        free(&mut self.0);
        take_and_free(1);
        // `LAST` is either created here and destroyed later, or already destroyed.
        let _ = LAST.try_with(|last| last.0.iter().for_each(Block::check));
        take_and_free(2);
        DESTROYED.fetch_add(1, SeqCst);
    }
}

struct KeepsAtLast(Vec<Block>);

impl Drop for KeepsAtLast {
    fn drop(&mut self) {
        free(&mut self.0);
        take_and_free(3);
        DESTROYED.fetch_add(1, SeqCst);
    }
}

thread_local! {
    static KEEPS: Keeps = const { Keeps(Vec::new()) };
    static FILLED: Keeps = Keeps(take(4));
    static LAST: KeepsAtLast = KeepsAtLast(take(5));
}

/// Sets a POSIX key so that its destructor runs `rounds` times (at most four), after the
/// destructors of thread-locals.
fn set_key(rounds: usize) {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    extern "C" fn destroy(rounds: *mut c_void) {
        take_and_free(6);
        DESTROYED.fetch_add(1, SeqCst);
        if rounds.addr() > 1 {
            set_key(rounds.addr() - 1);
        }
    }
    let key = *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is valid for writes; the destructor accepts any value.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(destroy)) }, 0);
        key
    });
    // SAFETY: the key exists; its value is a number, not a pointer.
    let set = unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(rounds)) };
    assert_eq!(set, 0);
}

/// Arranges six destructor calls for the end of the thread or goroutine. Three of them are the
/// key's.
fn with_destructors(seed: usize) {
    if seed.is_multiple_of(2) {
        take_and_free(7);
    }
    KEEPS.with(|_| ());
    if seed.is_multiple_of(3) {
        LAST.with(|last| last.0.iter().for_each(Block::check));
    }
    FILLED.with(|filled| filled.0.iter().for_each(Block::check));
    set_key(3);
}

#[test]
fn destructors_of_thread_locals_take_and_free_blocks() {
    succeeds("destructors, threads");
    succeeds("destructors, goroutines");
}

fn destructors_do_not_pile_up(round: impl Fn(usize)) {
    const ROUNDS: usize = 130;
    (0..30).for_each(&round);
    let before = stats();
    (30..ROUNDS).for_each(&round);
    let after = stats();
    assert_eq!(DESTROYED.load(SeqCst), 6 * ROUNDS);
    assert!(after.in_use < before.in_use + (16 << 20), "{before:?}, then {after:?}");
    assert_eq!(BEHIND.large.load(SeqCst), 0, "all was freed");
}

fn destructors_of_goroutines() {
    run(|| {
        set_procs(4);
        destructors_do_not_pile_up(|seed| {
            let other = go(|| take(8));
            let ends = go(move || {
                with_destructors(seed);
                yield_now();
            });
            ends.join().unwrap();
            free(&mut other.join().unwrap());
        });
    });
}

#[test]
fn blocks_outlive_the_goroutines_and_threads_that_took_them() {
    let mut before = take(1);
    let mut after = run(move || {
        free(&mut before);
        go(|| take(2)).join().unwrap()
    });
    after.extend(thread::spawn(|| run(|| take(3))).join().unwrap());
    go(move || free(&mut after)).join().unwrap();
}

#[test]
fn forked_children_can_allocate() {
    succeeds("fork, a thread");
    succeeds("fork, a goroutine");
    succeeds("fork, the world stops");
}

/// Forks, and fails unless `f` returns in the child.
fn fork(f: impl FnOnce()) {
    // SAFETY: the child only allocates, starts a thread and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no handler is installed; the signal ends the child.
        unsafe { libc::alarm(LIMIT.as_secs() as u32) };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if result.is_ok() { 9 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a child of this process; `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 9, "{status:#x}");
}

fn forks() {
    for round in 0..25 {
        let mut inherited = take(round);
        fork(|| {
            free(&mut inherited);
            (0..5).for_each(take_and_free);
            if round % 4 == 0 {
                let mut others = c_thread::run(|| take(1));
                free(&mut others);
                gosched::alloc::release_memory();
                take_and_free(2);
            }
        });
        inherited.iter().for_each(Block::check);
        free(&mut inherited);
    }
}

static OVER: AtomicBool = AtomicBool::new(false);

fn allocate_until_over(seed: u64) {
    let mut held = Vec::new();
    for round in 0.. {
        if OVER.load(SeqCst) {
            return free(&mut held);
        }
        free(&mut std::mem::replace(&mut held, take(seed + round)));
        if round % 64 == 0 {
            gosched::alloc::release_memory();
        }
        yield_now();
    }
}

fn a_thread_forks() {
    let others: [_; 3] =
        std::array::from_fn(|each| thread::spawn(move || allocate_until_over(each as u64)));
    let goroutines: [_; 3] =
        std::array::from_fn(|each| go(move || allocate_until_over(each as u64)));
    forks();
    OVER.store(true, SeqCst);
    others.into_iter().for_each(|other| other.join().unwrap());
    goroutines.into_iter().for_each(|other| other.join().unwrap());
}

fn a_goroutine_forks() {
    let other = thread::spawn(|| allocate_until_over(10));
    run(|| {
        set_procs(4);
        let others: [_; 3] =
            std::array::from_fn(|each| go(move || allocate_until_over(each as u64)));
        let forking = [(); 2].map(|()| go(forks));
        forking.into_iter().for_each(|one| one.join().unwrap());
        OVER.store(true, SeqCst);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
    other.join().unwrap();
}

/// Goroutines fork while requests to stop arrive: the child inherits some of them.
fn goroutines_fork_while_the_world_stops() {
    run(|| {
        set_procs(4);
        let stopping = go(|| {
            for round in 0.. {
                if OVER.load(SeqCst) {
                    break;
                }
                set_procs(3 + round % 2);
            }
        });
        let forking = [(); 2].map(|()| go(forks));
        forking.into_iter().for_each(|one| one.join().unwrap());
        OVER.store(true, SeqCst);
        stopping.join().unwrap();
    });
}

/// Changes a byte that the program does not own.
///
/// # Safety
/// - **mapped**: the byte is in a chunk, which is never unmapped.
unsafe fn spoil(block: &Block, at: usize) {
    let byte = block.start().wrapping_add(at);
    // SAFETY: mapped — promised by the caller. The write is a deliberate mistake that the cache
    // must detect.
    let value = unsafe { byte.read_volatile() };
    // SAFETY: as above.
    unsafe { byte.write_volatile(!value) };
}

fn release(block: &Block) {
    // SAFETY: the block was allocated with this layout. A second call is a deliberate mistake that
    // the cache must detect.
    unsafe { ALLOC.dealloc(block.start(), block.layout()) }
}

fn writes_past_the_end(size: usize, by: usize) {
    let block = Block::new(&ALLOC, layout_of(size)).unwrap();
    // SAFETY: mapped — the block is small, and in debug builds a canary follows it.
    unsafe { spoil(&block, size + by) };
    release(&block);
}

fn writes_past_the_end_and_grows() {
    let mut block = Block::new(&ALLOC, layout_of(100)).unwrap();
    // SAFETY: mapped — the block is small.
    unsafe { spoil(&block, 100) };
    block.resize(&ALLOC, 5000);
    block.free(&ALLOC);
}

fn frees_twice(size: usize, between: usize) {
    let block = Block::new(&ALLOC, layout_of(size)).unwrap();
    let others: Vec<_> =
        (0..between).map(|_| Block::new(&ALLOC, layout_of(size)).unwrap()).collect();
    release(&block);
    others.into_iter().for_each(|other| other.free(&ALLOC));
    release(&block);
}

fn frees_twice_elsewhere() {
    let block = Block::new(&ALLOC, layout_of(64)).unwrap();
    release(&block);
    thread::spawn(move || release(&block)).join().unwrap();
}

fn writes_after_free(size: usize, at: usize) {
    let block = Block::new(&ALLOC, layout_of(size)).unwrap();
    release(&block);
    // SAFETY: mapped — the block is small.
    unsafe { spoil(&block, at) };
    let all: Vec<_> = (0..100_000).filter_map(|_| Block::new(&ALLOC, layout_of(size))).collect();
    black_box(all);
}

fn assert_fatal(scenario: &str, output: &Output, sentence: &str) {
    let text = children::stderr(output);
    let said = text.lines().any(|line| line.starts_with("runtime: ") && line.contains(sentence));
    assert!(said, "{scenario}: {:?} {text}", output.status);
    assert!(!output.status.success(), "{scenario}: {text}");
}

#[cfg_attr(not(debug_assertions), ignore = "not checked in release builds")]
#[test]
fn writing_past_the_end_is_fatal_in_debug_builds() {
    for size in [1, 8, 16, 24, 100, 1000, 4096, SMALL] {
        for by in [0, 7] {
            let scenario = format!("past the end,{size},{by}");
            assert_fatal(&scenario, &children::run(&scenario), "written past the end");
        }
    }
    for scenario in ["past the end, then grows", "past the end, goroutine"] {
        assert_fatal(scenario, &children::run(scenario), "written past the end");
    }
}

#[cfg_attr(not(debug_assertions), ignore = "not checked in release builds")]
#[test]
fn freeing_twice_is_fatal_in_debug_builds() {
    for (size, between) in [(16, 0), (100, 0), (100, 3), (100, 1000), (SMALL, 0), (SMALL, 100)] {
        let scenario = format!("twice,{size},{between}");
        assert_fatal(&scenario, &children::run(&scenario), "freed twice");
    }
    for scenario in ["twice, elsewhere", "twice, goroutine"] {
        assert_fatal(scenario, &children::run(scenario), "freed twice");
    }
}

/// Blocks that are smaller than the links of a free block, which take 16 bytes.
#[cfg_attr(not(debug_assertions), ignore = "not checked in release builds")]
#[test]
fn freeing_a_tiny_block_twice_is_fatal_in_debug_builds() {
    for (size, between) in [(1, 0), (1, 3), (8, 0), (8, 1000), (15, 1)] {
        let scenario = format!("twice,{size},{between}");
        assert_fatal(&scenario, &children::run(&scenario), "freed twice");
    }
}

#[cfg_attr(not(debug_assertions), ignore = "not checked in release builds")]
#[test]
fn writing_after_the_free_is_fatal_in_debug_builds() {
    for size in [17, 100, 1000, SMALL] {
        for at in [16, size / 2, size - 1] {
            let scenario = format!("after,{size},{}", at.max(16));
            assert_fatal(
                &scenario,
                &children::run(&scenario),
                "was written after the block was freed",
            );
        }
    }
    let scenario = "after, goroutine";
    assert_fatal(scenario, &children::run(scenario), "was written after the block was freed");
}

#[cfg_attr(not(debug_assertions), ignore = "not checked in release builds")]
#[test]
fn writing_to_the_first_bytes_after_the_free_is_fatal_in_debug_builds() {
    for (size, at) in [(1, 0), (16, 0), (16, 7), (16, 8), (16, 15), (1000, 0), (1000, 12)] {
        let scenario = format!("after,{size},{at}");
        assert_fatal(&scenario, &children::run(&scenario), "was written after the block was freed");
    }
}

#[test]
fn child() {
    let Some(scenario) = children::scenario() else { return };
    match scenario.as_str() {
        "destructors, threads" => destructors_do_not_pile_up(|seed| {
            let thread = thread::spawn(move || with_destructors(seed));
            thread.join().unwrap();
        }),
        "destructors, goroutines" => destructors_of_goroutines(),
        "fork, a thread" => a_thread_forks(),
        "fork, a goroutine" => a_goroutine_forks(),
        "fork, the world stops" => goroutines_fork_while_the_world_stops(),
        "past the end, then grows" => writes_past_the_end_and_grows(),
        "past the end, goroutine" => run(|| go(|| writes_past_the_end(100, 0)).join().unwrap()),
        "twice, elsewhere" => frees_twice_elsewhere(),
        "twice, goroutine" => run(|| go(|| frees_twice(100, 2)).join().unwrap()),
        "after, goroutine" => run(|| go(|| writes_after_free(100, 50)).join().unwrap()),
        mistake => make(mistake),
    }
}

/// Makes the mistake that `mistake` names; two numbers follow the name.
fn make(mistake: &str) {
    let mut parts = mistake.split(',');
    let name = parts.next();
    let mut number = || parts.next().unwrap().parse().unwrap();
    let (first, second) = (number(), number());
    match name {
        Some("past the end") => writes_past_the_end(first, second),
        Some("twice") => frees_twice(first, second),
        Some("after") => writes_after_free(first, second),
        other => panic!("no mistake {other:?}"),
    }
}

fn program(name: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_alloc_program")).arg(name).output().unwrap();
    let text = children::stderr(&output);
    assert!(output.status.success(), "{name}: {:?} {text}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn main_installs_the_cache_in_front_of_the_allocator_it_names() {
    assert_eq!(program("counts"), "counted\nat exit\n");
}

#[test]
fn main_installs_no_cache_when_the_option_is_off() {
    assert_eq!(program("off"), "off\n");
}

#[test]
fn main_installs_the_cache_by_default() {
    let output = Command::new(env!("CARGO_BIN_EXE_default_alloc_program")).output().unwrap();
    assert!(output.status.success() && output.stdout == b"installed\n", "{output:?}");
}
