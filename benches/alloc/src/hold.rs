//! Memory of a goroutine that allocates: each of 100 000 goroutines allocates and frees a megabyte
//! in total, and keeps 100 bytes. Each case runs in its own process. The first case allocates
//! nothing.

use crate::{ALLOC, JEMALLOC, MIMALLOC, SYSTEM};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::process::Command;

const GOROUTINES: usize = 100_000;
const CASE: &str = "BENCH_ALLOC_HOLD";

/// Runs each case in a child process, and prints the bytes per goroutine.
pub fn print() {
    let measure = |case: &str| -> f64 {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .env(CASE, case)
            .output()
            .expect("a child");
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().unwrap_or_else(|_| panic!("{case}: {output:?}"))
    };
    let nothing = measure("nothing");
    println!(
        "hold: bytes for each of {GOROUTINES} goroutines, beyond the {nothing:.0} of one that allocates nothing"
    );
    for case in ["Alloc", "glibc", "mimalloc", "jemalloc"] {
        println!("  {case:<10}{:>9.0}", measure(case) - nothing);
    }
}

/// Runs the case if this process is a child, then prints the result and exits.
pub fn run_if_child() {
    let Ok(case) = std::env::var(CASE) else { return };
    gosched::runtime::set_procs(2);
    let bytes = gosched::run(|| match &*case {
        "nothing" => hold(|| 0),
        "Alloc" => hold(|| churn(&ALLOC)),
        "glibc" => hold(|| churn(&SYSTEM)),
        "mimalloc" => hold(|| churn(&MIMALLOC)),
        _ => hold(|| churn(&JEMALLOC)),
    });
    println!("{bytes}");
    std::process::exit(0);
}

/// Allocates a megabyte in blocks of many sizes, at most twenty at a time, and frees them. Then
/// allocates a block of 100 bytes, which is never freed, and returns its address.
fn churn<A: GlobalAlloc>(a: &A) -> usize {
    let layout = |size| Layout::from_size_align(size, 8).expect("a small size");
    let mut left = 1 << 20;
    let mut held = [(std::ptr::null_mut::<u8>(), 0); 20];
    let mut at = 0;
    let mut size = 16;
    while left > 0 {
        let (block, old) = held[at];
        if !block.is_null() {
            // SAFETY: the block was allocated below with this layout.
            unsafe { a.dealloc(block, layout(old)) };
        }
        // SAFETY: the size is not 0.
        let block = unsafe { a.alloc(layout(size)) };
        // SAFETY: the block has `size` bytes.
        unsafe { block.write_bytes(1, size) };
        held[at] = (black_box(block), size);
        left -= size.min(left);
        at = (at + 1) % held.len();
        size = 16 + (size * 7 + 13) % 3000;
    }
    for (block, size) in held {
        if !block.is_null() {
            // SAFETY: the block was allocated above with this layout.
            unsafe { a.dealloc(block, layout(size)) };
        }
    }
    // SAFETY: the size is not 0.
    let block = unsafe { a.alloc(layout(100)) };
    // SAFETY: the block has 100 bytes.
    unsafe { block.write_bytes(1, 100) };
    black_box(block) as usize
}

/// Returns the memory per goroutine while all goroutines are parked, in bytes: resident memory and
/// page tables.
fn hold(f: impl Fn() -> usize + Send + Sync + Copy + 'static) -> f64 {
    let before = memory();
    for _ in 0..GOROUTINES {
        gosched::go(move || {
            let held = f();
            gosched::park();
            black_box(held);
        });
        if gosched::runtime::num_goroutines().is_multiple_of(64) {
            gosched::yield_now();
        }
    }
    // After that many yields of this goroutine, all goroutines have run and are parked.
    for _ in 0..1000 {
        gosched::yield_now();
    }
    (memory() - before) as f64 / GOROUTINES as f64
}

fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let kib = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number")
    };
    (kib("VmRSS") + kib("VmPTE")) << 10
}
