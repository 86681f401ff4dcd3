//! The allocation cache: blocks in use are intact, disjoint and aligned, failed allocations do no
//! harm, and memory stays bounded and is returned to the system. Each test that measures memory
//! runs in a separate process.

use gosched::alloc::{Alloc, Stats, release_memory, stats};
use gosched::runtime::set_procs;
use gosched::{go, run, yield_now};
use gosched_tests::alloc_blocks::{
    BackingAlloc, Block, CALLER_ID, CHUNK, Exchange, FIRST_THREAD_ID, Random, SMALL, layout_of,
};
use gosched_tests::children;
use std::alloc::{GlobalAlloc, Layout};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

const MIB: usize = 1 << 20;

/// Factor for the number of steps. Debug builds are many times slower.
const EFFORT: usize = if cfg!(debug_assertions) { 1 } else { 6 };

fn nothing_is_left_behind(behind: &BackingAlloc) {
    assert_eq!(behind.large.load(SeqCst), 0, "bytes of large blocks");
    assert_eq!(behind.chunks_back.load(SeqCst), 0, "chunks are never given back");
}

fn random_steps<A: GlobalAlloc + Sync>(exchange: &Exchange<A>, seed: u64, count: usize) {
    let mut random = Random::new(seed);
    let mut own = Vec::new();
    for step in 0..count {
        exchange.step(&mut random, &mut own);
        if step % 16 == 0 {
            yield_now();
        }
    }
    exchange.free_blocks(own);
}

fn on_four_threads<A: GlobalAlloc + Sync>(exchange: &Exchange<A>, seed: u64, count: usize) {
    thread::scope(|scope| {
        for each in 0..4 {
            scope.spawn(move || random_steps(exchange, seed + each, count));
        }
    });
    exchange.close();
}

fn in_goroutines<A>(exchange: Exchange<A>, seed: u64, goroutines: u64, count: usize) -> Exchange<A>
where
    A: GlobalAlloc + Sync,
{
    run(move || {
        set_procs(4);
        gosched::scope(|scope| {
            for each in 0..goroutines {
                let exchange = &exchange;
                scope.go(move || random_steps(exchange, seed + each, count));
            }
        });
        exchange.close();
        exchange
    })
}

#[test]
fn blocks_of_one_thread_stay_intact_disjoint_and_aligned() {
    static BEHIND: BackingAlloc = BackingAlloc::new();
    // SAFETY: memory — `BackingAlloc` allocates from the system.
    static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };
    let exchange = Exchange::new(&ALLOC);
    for seed in 0..5 {
        random_steps(&exchange, seed, 4000 * EFFORT);
        exchange.close();
    }
    assert_eq!(exchange.refused(), 0);
    nothing_is_left_behind(&BEHIND);
}

#[test]
fn blocks_exchanged_by_threads_stay_intact_disjoint_and_aligned() {
    static BEHIND: BackingAlloc = BackingAlloc::new();
    // SAFETY: memory — `BackingAlloc` allocates from the system.
    static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };
    let exchange = Exchange::new(&ALLOC);
    on_four_threads(&exchange, 10, 6000 * EFFORT);
    assert_eq!(exchange.refused(), 0);
    nothing_is_left_behind(&BEHIND);
}

#[test]
fn blocks_exchanged_by_a_thousand_goroutines_stay_intact_disjoint_and_aligned() {
    static BEHIND: BackingAlloc = BackingAlloc::new();
    // SAFETY: memory — `BackingAlloc` allocates from the system.
    static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };
    let exchange = in_goroutines(Exchange::new(&ALLOC), 20, 1000, 30 * EFFORT);
    assert_eq!(exchange.refused(), 0);
    nothing_is_left_behind(&BEHIND);
}

#[test]
fn blocks_stay_intact_while_free_memory_is_released() {
    static BEHIND: BackingAlloc = BackingAlloc::new();
    // SAFETY: memory — `BackingAlloc` allocates from the system.
    static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };
    let exchange = Exchange::new(&ALLOC);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                release_memory();
                let Stats { reserved, in_use, warm, .. } = stats();
                assert!(in_use <= reserved && warm <= reserved, "{in_use} {warm} {reserved}");
                thread::yield_now();
            }
        });
        let steps = || on_four_threads(&exchange, 30, 5000 * EFFORT);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(steps));
        over.store(true, SeqCst);
        result.unwrap();
    });
    assert_eq!(exchange.refused(), 0);
    nothing_is_left_behind(&BEHIND);
}

#[test]
fn small_blocks_are_cut_from_chunks_and_large_blocks_come_from_the_backing_allocator() {
    static BEHIND: BackingAlloc = BackingAlloc::new();
    // SAFETY: memory — `BackingAlloc` allocates from the system.
    static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };
    let mut small = Vec::new();
    for size in (1..=SMALL).step_by(7).chain([SMALL]) {
        small.extend(Block::new(&ALLOC, Layout::from_size_align(size, 1).unwrap()));
        small.extend(Block::zeroed(&ALLOC, layout_of(size)));
    }
    assert_eq!(BEHIND.large.load(SeqCst), 0, "only chunks");
    assert_eq!(BEHIND.calls.load(SeqCst), BEHIND.chunks.load(SeqCst), "only chunks");
    for round in 1..=3 {
        let before = BEHIND.calls.load(SeqCst);
        let large = Block::new(&ALLOC, layout_of((16 << 10) + round)).unwrap();
        assert_eq!(BEHIND.calls.load(SeqCst), before + 1, "straight from behind");
        assert!(BEHIND.large.load(SeqCst) > 16 << 10);
        large.free(&ALLOC);
        assert_eq!(BEHIND.large.load(SeqCst), 0, "and straight back");
    }
    small.into_iter().for_each(|block| block.free(&ALLOC));
    nothing_is_left_behind(&BEHIND);
}

#[test]
fn impossible_sizes_are_refused_and_leave_the_old_block_intact() {
    static ALLOC: Alloc = Alloc::new();
    let most = isize::MAX as usize;
    for (size, align) in [(most, 1), (most - 15, 1), (most - 4095, 4096), (1 << 62, 65536)] {
        let huge = Layout::from_size_align(size, align).unwrap();
        // SAFETY: the size is not 0.
        assert!(unsafe { ALLOC.alloc(huge) }.is_null(), "{huge:?}");
        // SAFETY: the size is not 0.
        assert!(unsafe { ALLOC.alloc_zeroed(huge) }.is_null(), "{huge:?}");
        for old in [1, 1000, SMALL, 30_000] {
            let layout = Layout::from_size_align(old, align).unwrap();
            let mut block = Block::new(&ALLOC, layout).unwrap();
            assert!(!block.resize(&ALLOC, size), "{old} to {size}");
            assert!(block.resize(&ALLOC, old + 1));
            block.free(&ALLOC);
        }
    }
}

#[test]
fn nothing_is_lost_when_the_backing_allocator_sometimes_fails() {
    static BEHIND: BackingAlloc = BackingAlloc::new();
    // SAFETY: memory — `BackingAlloc` allocates from the system.
    static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };
    let mut exchange = Exchange::new(&ALLOC);
    for nth in [1, 2, 3, 7] {
        BEHIND.refuse_every(nth);
        on_four_threads(&exchange, 40, 600 * EFFORT);
        exchange = in_goroutines(exchange, 50, 200, 12 * EFFORT);
    }
    assert!(exchange.refused() > 100 && BEHIND.refused.load(SeqCst) > 100);
    BEHIND.refuse_every(0);
    let before = exchange.refused();
    on_four_threads(&exchange, 60, 600 * EFFORT);
    exchange = in_goroutines(exchange, 70, 200, 12 * EFFORT);
    assert_eq!(exchange.refused(), before, "all is well again");
    nothing_is_left_behind(&BEHIND);
}

#[cfg_attr(feature = "threads", ignore = "goroutines are threads")]
#[test]
fn the_backing_allocator_never_sees_the_thread_locals_of_a_goroutine() {
    static BEHIND: BackingAlloc = BackingAlloc::new();
    // SAFETY: memory — `BackingAlloc` allocates from the system.
    static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };
    fn all_ways(random: &mut Random) {
        let mut own = Vec::new();
        for _ in 0..20 {
            own.extend(Block::new(&ALLOC, layout_of(20_000 + random.size())));
            own.extend(Block::zeroed(&ALLOC, random.layout()));
            let at = random.below(own.len());
            assert!(own[at].resize(&ALLOC, 20_000 + random.size()));
        }
        own.into_iter().for_each(|block| block.free(&ALLOC));
    }
    let thread = thread::spawn(|| {
        CALLER_ID.set(FIRST_THREAD_ID);
        run(|| {
            set_procs(4);
            gosched::scope(|scope| {
                for each in 1..1000 {
                    scope.go(move || {
                        CALLER_ID.set(each);
                        let mut random = Random::new(each as u64);
                        all_ways(&mut random);
                        yield_now();
                        all_ways(&mut random);
                        assert!(
                            !BackingAlloc::was_entered_by_caller(),
                            "a goroutine's thread-locals"
                        );
                        assert_eq!(CALLER_ID.get(), each);
                    });
                }
            });
        });
        all_ways(&mut Random::new(0));
        assert!(BackingAlloc::was_entered_by_caller(), "the thread's own");
    });
    thread.join().unwrap();
    assert!(BEHIND.calls.load(SeqCst) > 40_000);
    assert_eq!(BEHIND.as_goroutine.load(SeqCst), 0);
    // One set for each thread that ever entered. If goroutines entered with their own
    // thread-locals, there would be 999 more.
    let heaps = BEHIND.heaps.load(SeqCst);
    assert!(heaps < 500, "{heaps} sets of thread-locals");
}

fn succeeds(scenario: &str) {
    let output = children::run(scenario);
    let text = children::stderr(&output);
    assert!(output.status.success(), "{scenario}: {:?} {text}", output.status);
}

#[test]
fn blocks_in_use_stay_intact_when_the_backing_allocator_always_fails() {
    succeeds("nothing behind, a thread");
    succeeds("nothing behind, goroutines");
}

#[test]
fn memory_stays_bounded_when_one_party_allocates_and_another_frees() {
    succeeds("flow between threads");
    succeeds("flow between goroutines");
    succeeds("flow of goroutines that end");
}

#[test]
fn threads_that_end_leave_their_cached_blocks_to_other_threads() {
    succeeds("threads that end");
}

#[test]
fn a_thread_caches_little_free_memory() {
    succeeds("a thread keeps little");
}

#[test]
fn free_memory_goes_back_to_the_system() {
    succeeds("release");
    succeeds("release, in any order");
    succeeds("release, goroutines");
}

#[test]
fn child() {
    match children::scenario().as_deref() {
        Some("nothing behind, a thread") => nothing_behind_a_thread(),
        Some("nothing behind, goroutines") => nothing_behind_goroutines(),
        Some("flow between threads") => flow_between_threads(),
        Some("flow between goroutines") => flow_between_goroutines(),
        Some("flow of goroutines that end") => flow_of_goroutines_that_end(),
        Some("threads that end") => threads_that_end(),
        Some("a thread keeps little") => a_thread_that_frees_much(),
        Some("release") => memory_comes_back(|| fill_and_free(100 * MIB * EFFORT.min(2), false)),
        Some("release, in any order") => memory_comes_back(|| {
            thread::spawn(|| fill_and_free(60 * MIB, true)).join().unwrap();
        }),
        Some("release, goroutines") => memory_comes_back(|| {
            run(|| {
                set_procs(4);
                let parts = [(); 25].map(|()| go(|| fill_and_free(4 * MIB, false)));
                parts.into_iter().for_each(|part| part.join().unwrap());
            });
            fill_and_free(20 * MIB, false);
        }),
        _ => {}
    }
}

static BEHIND: BackingAlloc = BackingAlloc::new();
// SAFETY: memory — `BackingAlloc` allocates from the system.
static ALLOC: Alloc<&BackingAlloc> = unsafe { Alloc::in_front_of_any(&BEHIND) };

/// Allocates blocks until the allocator fails.
fn exhaust(size: usize) -> Vec<Block> {
    let limit = stats().reserved / size + 1;
    let held: Vec<_> =
        std::iter::from_fn(|| Block::new(&ALLOC, layout_of(size))).take(limit).collect();
    assert!(held.len() < limit, "{limit} blocks of {size} bytes with nothing behind");
    held
}

fn nothing_behind_a_thread() {
    for size in [16, 100, 1000, 8000, SMALL] {
        let warm: Vec<_> = (0..1000).filter_map(|_| Block::new(&ALLOC, layout_of(size))).collect();
        assert_eq!(warm.len(), 1000);
        BEHIND.refuse_every(1);
        assert!(Block::new(&ALLOC, layout_of(20_000)).is_none());
        assert!(Block::zeroed(&ALLOC, layout_of(20_000)).is_none());
        let mut held = exhaust(size);
        assert!(Block::zeroed(&ALLOC, layout_of(size)).is_none(), "still nothing");
        for block in held.iter_mut().take(1000) {
            assert!(!block.resize(&ALLOC, 20_000));
        }
        if let Some(block) = held.pop() {
            block.free(&ALLOC);
            held.push(Block::new(&ALLOC, layout_of(size)).expect("the one that was freed"));
        }
        held.iter().chain(&warm).for_each(Block::check);
        BEHIND.refuse_every(0);
        for block in held.iter_mut().take(1000) {
            assert!(block.resize(&ALLOC, 20_000), "there is memory again");
        }
        held.extend(Block::new(&ALLOC, layout_of(size)));
        held.into_iter().chain(warm).for_each(|block| block.free(&ALLOC));
    }
    let exchange = Exchange::new(&ALLOC);
    on_four_threads(&exchange, 80, 500);
    nothing_is_left_behind(&BEHIND);
}

/// Every goroutine allocates until the allocator fails, and continues when there is memory again.
fn nothing_behind_goroutines() {
    const GOROUTINES: usize = 50;
    static EXHAUSTED: AtomicUsize = AtomicUsize::new(0);
    static REFILLED: AtomicBool = AtomicBool::new(false);
    BEHIND.refuse_every(1);
    run(|| {
        set_procs(4);
        let all: Vec<_> = (0..GOROUTINES)
            .map(|each| {
                go(move || {
                    let layout = layout_of(100 * (each + 1));
                    let mut held = Vec::new();
                    while let Some(block) = Block::new(&ALLOC, layout) {
                        held.push(block);
                        yield_now();
                    }
                    EXHAUSTED.fetch_add(1, SeqCst);
                    while !REFILLED.load(SeqCst) {
                        yield_now();
                    }
                    held.push(Block::zeroed(&ALLOC, layout).unwrap());
                    let some = held.iter_mut().take(1000);
                    some.for_each(|block| assert!(block.resize(&ALLOC, 20_000)));
                    held.into_iter().for_each(|block| block.free(&ALLOC));
                })
            })
            .collect();
        while EXHAUSTED.load(SeqCst) < GOROUTINES {
            yield_now();
        }
        BEHIND.refuse_every(0);
        REFILLED.store(true, SeqCst);
        all.into_iter().for_each(|each| each.join().unwrap());
    });
    nothing_is_left_behind(&BEHIND);
}

/// Allocates about ten million bytes of small blocks.
fn ten_million_bytes(random: &mut Random) -> Vec<Block> {
    let mut left = 10_000_000;
    let sizes = std::iter::from_fn(|| {
        let size = 1 + random.below(1000);
        left -= size.min(left);
        (left > 0).then_some(size)
    });
    sizes.map(|size| Block::new(&ALLOC, layout_of(size)).unwrap()).collect()
}

fn free_all(blocks: Vec<Block>) {
    blocks.into_iter().for_each(|block| block.free(&ALLOC));
}

/// Runs many rounds, and checks after each that the memory in use and the reserved memory do not
/// grow with the number of rounds.
fn stays_bounded(rounds: usize, allowed: usize, mut round: impl FnMut(usize)) {
    round(0);
    round(1);
    let before = stats();
    for number in 2..rounds {
        round(number);
        let now = stats();
        assert!(now.in_use < before.in_use + allowed, "round {number}: {before:?}, now {now:?}");
        assert!(now.reserved < before.reserved + allowed, "{number}: {before:?}, now {now:?}");
    }
}

fn flow_between_threads() {
    let (sender, receiver) = std::sync::mpsc::sync_channel(0);
    let (done, was_done) = std::sync::mpsc::sync_channel(0);
    thread::spawn(move || {
        for blocks in receiver {
            free_all(blocks);
            done.send(()).unwrap();
        }
    });
    let mut random = Random::new(1);
    stays_bounded(8 * EFFORT, 16 * MIB, |_| {
        sender.send(ten_million_bytes(&mut random)).unwrap();
        was_done.recv().unwrap();
    });
}

/// Two goroutines fill a queue and two empty it. The threads that run them change all the time.
fn flow_between_goroutines() {
    type Queue = Arc<Mutex<VecDeque<Vec<Block>>>>;
    const PART: usize = 1000;
    fn produce(queue: &Queue, seed: u64) {
        let mut blocks = ten_million_bytes(&mut Random::new(seed));
        while !blocks.is_empty() {
            let part = blocks.split_off(blocks.len().saturating_sub(PART));
            queue.lock().unwrap().push_back(part);
            yield_now();
        }
    }
    fn consume(queue: &Queue, over: &AtomicBool) {
        loop {
            let last = over.load(SeqCst);
            let part = queue.lock().unwrap().pop_front();
            match part {
                Some(part) => free_all(part),
                None if last => return,
                None => yield_now(),
            }
        }
    }
    run(|| {
        set_procs(4);
        stays_bounded(6 * EFFORT, 32 * MIB, |round| {
            let (queue, over) = (Queue::default(), AtomicBool::new(false));
            gosched::scope(|scope| {
                let (queue, over) = (&queue, &over);
                scope.go(move || consume(queue, over));
                scope.go(move || consume(queue, over));
                gosched::scope(|producers| {
                    producers.go(move || produce(queue, 2 * round as u64));
                    producers.go(move || produce(queue, 2 * round as u64 + 1));
                });
                over.store(true, SeqCst);
            });
        });
    });
}

/// Number of goroutines in a round of [`flow_of_goroutines_that_end`], and number of blocks of
/// each.
const FLOWING: usize = 100;
const BLOCKS_EACH: usize = 200;

fn blocks_of_one(seed: usize, count: usize) -> Vec<Block> {
    let mut random = Random::new(seed as u64);
    let layouts = (0..count).map(|_| layout_of(1 + random.below(1000)));
    layouts.filter_map(|layout| Block::new(&ALLOC, layout)).collect()
}

/// Brings the reserved memory to its maximum before anything is measured: every goroutine holds a
/// cache and more blocks than in a round, until all goroutines do.
///
/// Reserved memory follows the largest amount that was in use at any moment. Where goroutines are
/// threads, each has its own cache, and how many goroutines of a round live at the same moment
/// depends on the system.
fn all_caches_at_once() {
    static FULL: AtomicUsize = AtomicUsize::new(0);
    let parts: Vec<_> = (0..FLOWING)
        .map(|each| {
            go(move || {
                let part = blocks_of_one(each, BLOCKS_EACH * 3 / 2);
                FULL.fetch_add(1, SeqCst);
                while FULL.load(SeqCst) < FLOWING {
                    yield_now();
                }
                part
            })
        })
        .collect();
    parts.into_iter().for_each(|part| free_all(part.join().unwrap()));
}

fn flow_of_goroutines_that_end() {
    run(|| {
        set_procs(4);
        all_caches_at_once();
        stays_bounded(8 * EFFORT, 16 * MIB, |round| {
            let first = (round + 1) * FLOWING;
            let parts: Vec<_> = (first..first + FLOWING)
                .map(|seed| go(move || blocks_of_one(seed, BLOCKS_EACH)))
                .collect();
            parts.into_iter().for_each(|part| free_all(part.join().unwrap()));
        });
    });
}

fn random_blocks(count: usize) -> Vec<Block> {
    let mut random = Random::new(count as u64);
    (0..count).filter_map(|_| Block::new(&ALLOC, layout_of(1 + random.below(2000)))).collect()
}

/// Each thread fills its cache, and leaves a few blocks for the next thread to free.
fn threads_that_end() {
    let mut left = Vec::new();
    stays_bounded(12, 16 * MIB, |_| {
        for _ in 0..100 {
            let inherited = std::mem::take(&mut left);
            let thread = thread::spawn(move || {
                free_all(inherited);
                let mut own = random_blocks(200);
                let left = own.split_off(150);
                free_all(own);
                left
            });
            left = thread.join().unwrap();
        }
    });
    let at_once = Arc::new(Barrier::new(50));
    stays_bounded(5, 16 * MIB, |_| {
        let all = [(); 50].map(|()| {
            let at_once = at_once.clone();
            thread::spawn(move || {
                let own = random_blocks(100);
                at_once.wait();
                free_all(own);
            })
        });
        all.into_iter().for_each(|each| each.join().unwrap());
    });
}

fn a_thread_that_frees_much() {
    for size in [16, 48, 200, 1024, 5000, SMALL] {
        free_all(vec![Block::new(&ALLOC, layout_of(size)).unwrap()]);
    }
    release_memory();
    let before = stats();
    for size in [16, 48, 200, 1024, 5000, SMALL] {
        let blocks =
            (0..8 * MIB / size).filter_map(|_| Block::new(&ALLOC, layout_of(size))).collect();
        assert!(stats().in_use >= before.in_use + 8 * MIB - CHUNK, "{:?}", stats());
        free_all(blocks);
        release_memory();
    }
    let after = stats();
    assert!(after.in_use < before.in_use + 3 * MIB, "{before:?}, then {after:?}");
    assert!(after.warm < MIB, "{after:?}");
}

fn fill_and_free(total: usize, shuffled: bool) {
    let mut random = Random::new(total as u64);
    let mut blocks = Vec::new();
    let mut sum = 0;
    while sum < total {
        let size = 1 + random.below(2000);
        blocks.push(Block::new(&ALLOC, layout_of(size)).unwrap());
        sum += size;
        if blocks.len() % 1000 == 0 {
            yield_now();
        }
    }
    for at in (1..blocks.len()).filter(|_| shuffled) {
        blocks.swap(at, random.below(at));
    }
    free_all(blocks);
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Checks that `release_memory` returns free memory to the system. The limit allows for what each
/// thread keeps: its cached blocks, and the memory around them.
fn memory_comes_back(use_memory: impl Fn()) {
    fill_and_free(MIB, false);
    let before = resident();
    for _ in 0..EFFORT.min(2) {
        use_memory();
        release_memory();
        let after = resident();
        let threads = 1 + gosched::runtime::num_threads();
        let allowed = before + 15 * MIB + threads * 5 * MIB;
        assert!(after < allowed, "{before} bytes, then {after}: {:?}", stats());
        assert!(stats().warm < MIB, "{:?}", stats());
    }
    assert!(stats().reserved > 40 * MIB, "{:?}", stats());
}
