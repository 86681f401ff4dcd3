//! The workloads. A workload that calls `both` runs on two goroutines if its caller is a goroutine,
//! and on two threads otherwise.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Instant;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a small size")
}

fn alloc<A: GlobalAlloc>(a: &A, size: usize) -> *mut u8 {
    // SAFETY: the size is not 0.
    let block = unsafe { a.alloc(layout(size)) };
    assert!(!block.is_null());
    // SAFETY: the block has at least 16 bytes and is aligned to 8.
    unsafe { block.cast::<usize>().write(size) };
    block
}

fn free<A: GlobalAlloc>(a: &A, block: *mut u8) {
    // SAFETY: `alloc` has written the size there.
    let size = unsafe { block.cast::<usize>().read() };
    // SAFETY: `alloc` has allocated the block with this size.
    unsafe { a.dealloc(block, layout(size)) };
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

fn timed(operations: usize, f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64 / operations as f64
}

/// Calls `f` with 0 and with 1 at the same time: in goroutines if the caller is one, otherwise on
/// threads.
fn both(f: impl Fn(usize) + Sync) {
    let f = &f;
    if gosched::current().is_some() {
        gosched::scope(|scope| {
            for me in 0..2 {
                scope.go(move || f(me));
            }
        });
    } else {
        std::thread::scope(|scope| {
            for me in 0..2 {
                scope.spawn(move || f(me));
            }
        });
    }
}

/// Allocates a block and frees it, again and again.
pub fn pair<A: GlobalAlloc>(a: &A, size: usize) -> f64 {
    const N: usize = 2_000_000;
    timed(N, || {
        for _ in 0..N {
            // SAFETY: the size is not 0.
            let block = black_box(unsafe { a.alloc(layout(black_box(size))) });
            // SAFETY: the block was allocated above with this layout.
            unsafe { a.dealloc(block, layout(black_box(size))) };
        }
    })
}

pub fn mixed_pairs<A: GlobalAlloc>(a: &A) -> f64 {
    const N: usize = 2_000_000;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    timed(N, || {
        for _ in 0..N {
            let size = 16 + random.below(1000);
            free(a, black_box(alloc(a, size)));
        }
    })
}

/// Allocates a thousand blocks of mixed sizes, then frees all of them in the same order.
pub fn batches<A: GlobalAlloc>(a: &A) -> f64 {
    const ROUNDS: usize = 1000;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut blocks = vec![std::ptr::null_mut(); 1000];
    timed(ROUNDS * blocks.len(), || {
        for _ in 0..ROUNDS {
            blocks.fill_with(|| alloc(a, 16 + random.below(240)));
            blocks.iter().for_each(|&block| free(a, block));
        }
    })
}

/// The first thread allocates blocks, the second frees them.
pub fn handed_over<A: GlobalAlloc + Sync>(a: &A) -> f64 {
    const N: usize = 1_000_000;
    const RING: usize = 1024;
    let ring: Vec<AtomicPtr<u8>> = (0..RING).map(|_| AtomicPtr::default()).collect();
    timed(N, || {
        both(|me| {
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            for i in 0..N {
                let place = &ring[i % RING];
                if me == 0 {
                    let block = alloc(a, 16 + random.below(240));
                    wait(|| place.load(Ordering::Acquire).is_null());
                    place.store(block, Ordering::Release);
                } else {
                    wait(|| !place.load(Ordering::Acquire).is_null());
                    free(a, place.swap(std::ptr::null_mut(), Ordering::AcqRel));
                }
            }
        });
    })
}

fn wait(ready: impl Fn() -> bool) {
    let mut spins = 0;
    while !ready() {
        spins += 1;
        if spins < 1000 {
            std::hint::spin_loop();
        } else if gosched::current().is_some() {
            gosched::yield_now();
        } else {
            std::thread::yield_now();
        }
    }
}

/// After Larson and Krishnan: each thread replaces random blocks of its table, then the threads
/// swap their tables.
pub fn larson<A: GlobalAlloc + Sync>(a: &A) -> f64 {
    const TABLE: usize = 2000;
    const ROUNDS: usize = 20;
    const REPLACED: usize = 20_000;
    let tables: Vec<Vec<AtomicPtr<u8>>> =
        (0..2).map(|_| (0..TABLE).map(|_| AtomicPtr::default()).collect()).collect();
    let done = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let time = timed(2 * ROUNDS * REPLACED, || {
        both(|me| {
            let mut random = Random(0x9e37_79b9_7f4a_7c15 + me as u64);
            for round in 0..ROUNDS {
                wait(|| done[1 - me].load(Ordering::Acquire) >= round);
                let table = &tables[(me + round) % 2];
                for _ in 0..REPLACED {
                    let place = &table[random.below(TABLE)];
                    let old = place.load(Ordering::Relaxed);
                    if !old.is_null() {
                        free(a, old);
                    }
                    place.store(alloc(a, 16 + random.below(1000)), Ordering::Relaxed);
                }
                done[me].store(round + 1, Ordering::Release);
            }
        });
    });
    let all = tables.iter().flatten().map(|place| place.load(Ordering::Relaxed));
    all.filter(|block| !block.is_null()).for_each(|block| free(a, block));
    time
}

/// Each thread allocates and frees blocks of its own at random, and exchanges blocks with a shared
/// table. Most sizes are small, a few are very large.
pub fn stress<A: GlobalAlloc + Sync>(a: &A) -> f64 {
    const STEPS: usize = 300_000;
    let table: Vec<AtomicPtr<u8>> = (0..1000).map(|_| AtomicPtr::default()).collect();
    let time = timed(2 * STEPS, || {
        both(|me| {
            let mut random = Random(0xdead_beef_cafe_f00d + me as u64);
            let mut own: Vec<*mut u8> = Vec::with_capacity(STEPS);
            for _ in 0..STEPS {
                match random.below(100) {
                    0..50 => own.push(alloc(a, stress_size(&mut random))),
                    50..85 => {
                        if !own.is_empty() {
                            let at = random.below(own.len());
                            free(a, own.swap_remove(at));
                        }
                    }
                    _ => {
                        if !own.is_empty() {
                            let at = random.below(own.len());
                            let place = &table[random.below(table.len())];
                            let other = place.swap(own[at], Ordering::AcqRel);
                            if other.is_null() {
                                own.swap_remove(at);
                            } else {
                                own[at] = other;
                            }
                        }
                    }
                }
            }
            own.into_iter().for_each(|block| free(a, block));
        });
    });
    let all = table.iter().map(|place| place.load(Ordering::Relaxed));
    all.filter(|block| !block.is_null()).for_each(|block| free(a, block));
    time
}

fn stress_size(random: &mut Random) -> usize {
    match random.below(1000) {
        0 => 16 + random.below(100_000),
        1..10 => 16 + random.below(10_000),
        10..100 => 16 + random.below(1000),
        _ => 16 + random.below(128),
    }
}
