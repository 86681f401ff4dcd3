//! What a goroutine that allocates costs: 100 000 of them each have churned a megabyte and hold 100
//! bytes. Each case is a process of its own; the first allocates nothing.

use crate::{ALLOC, JEMALLOC, MIMALLOC, SYSTEM};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::process::Command;

const GOROUTINES: usize = 100_000;
const CASE: &str = "BENCH_ALLOC_HOLD";

/// Prints the bytes of each case; or, in a child, runs it.
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

/// In a child: runs its case, prints, and ends.
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

/// A megabyte in blocks of many sizes, up to twenty at a time; then one of 100 bytes, kept.
fn churn<A: GlobalAlloc>(a: &A) -> usize {
    let layout = |size| Layout::from_size_align(size, 8).expect("a small size");
    let mut left = 1 << 20;
    let mut held = [(std::ptr::null_mut::<u8>(), 0); 20];
    let mut at = 0;
    let mut size = 16;
    while left > 0 {
        let (block, old) = held[at];
        if !block.is_null() {
            // SAFETY: allocated below.
            unsafe { a.dealloc(block, layout(old)) };
        }
        // SAFETY: its size is not 0.
        let block = unsafe { a.alloc(layout(size)) };
        // SAFETY: it is that large.
        unsafe { block.write_bytes(1, size) };
        held[at] = (black_box(block), size);
        left -= size.min(left);
        at = (at + 1) % held.len();
        size = 16 + (size * 7 + 13) % 3000;
    }
    for (block, size) in held {
        if !block.is_null() {
            // SAFETY: allocated above.
            unsafe { a.dealloc(block, layout(size)) };
        }
    }
    // SAFETY: its size is not 0.
    let block = unsafe { a.alloc(layout(100)) };
    // SAFETY: it is that large.
    unsafe { block.write_bytes(1, 100) };
    black_box(block) as usize
}

/// Memory for each goroutine while all of them are parked: resident, with the page tables.
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
    // Everyone has had a turn when this one has had several.
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
