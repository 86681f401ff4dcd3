//! Compares the allocation cache with glibc, mimalloc and jemalloc. Each workload runs with each
//! allocator in turn, several rounds, and the best round counts. `bench-alloc [ROUNDS] [WORKLOAD]`.
//!
//! The column "in goroutines" measures the cache in goroutines. All other columns measure threads:
//! in goroutines, every allocator except the cache would keep a heap per goroutine (`hold` shows
//! what that costs).

mod hold;
mod threads;

use gosched_alloc::Alloc;
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, System};
use tikv_jemallocator::Jemalloc;

static ALLOC: Alloc = Alloc::new();
static SYSTEM: System = System;
static MIMALLOC: MiMalloc = MiMalloc;
static JEMALLOC: Jemalloc = Jemalloc;

/// A workload for any allocator, on threads or in goroutines. `run` returns nanoseconds per
/// operation.
struct Workload {
    name: &'static str,
    run: fn(&'static dyn Subject) -> f64,
}

/// An allocator under test. The workloads are compiled for each allocator, so that no indirect call
/// is measured per allocation.
trait Subject: Sync {
    fn pair(&self, size: usize) -> f64;
    fn mixed_pairs(&self) -> f64;
    fn batches(&self) -> f64;
    fn handed_over(&self) -> f64;
    fn larson(&self) -> f64;
    fn stress(&self) -> f64;
}

impl<A: GlobalAlloc + Sync> Subject for A {
    fn pair(&self, size: usize) -> f64 {
        threads::pair(self, size)
    }
    fn mixed_pairs(&self) -> f64 {
        threads::mixed_pairs(self)
    }
    fn batches(&self) -> f64 {
        threads::batches(self)
    }
    fn handed_over(&self) -> f64 {
        threads::handed_over(self)
    }
    fn larson(&self) -> f64 {
        threads::larson(self)
    }
    fn stress(&self) -> f64 {
        threads::stress(self)
    }
}

const WORKLOADS: [Workload; 8] = [
    Workload { name: "pair, 16 B", run: |subject| subject.pair(16) },
    Workload { name: "pair, 100 B", run: |subject| subject.pair(100) },
    Workload { name: "pair, 1000 B", run: |subject| subject.pair(1000) },
    Workload { name: "pair, mixed sizes", run: |subject| subject.mixed_pairs() },
    Workload { name: "1000, then free", run: |subject| subject.batches() },
    Workload { name: "handed over", run: |subject| subject.handed_over() },
    Workload { name: "larson, 2 threads", run: |subject| subject.larson() },
    Workload { name: "stress, 2 threads", run: |subject| subject.stress() },
];

fn main() {
    hold::run_if_child();
    let mut arguments = std::env::args().skip(1);
    let rounds: usize =
        arguments.next().map_or(5, |text| text.parse().expect("a number of rounds"));
    let only = arguments.next().unwrap_or_default();
    gosched::runtime::set_procs(2);
    let subjects: [(&str, &'static dyn Subject); 4] =
        [("glibc", &SYSTEM), ("mimalloc", &MIMALLOC), ("jemalloc", &JEMALLOC), ("Alloc", &ALLOC)];
    println!(
        "{:<20}{:>9}{:>10}{:>10}{:>9}{:>15}   ratio to glibc, mimalloc (goroutines: to glibc)",
        "ns per operation", "glibc", "mimalloc", "jemalloc", "Alloc", "in goroutines"
    );
    for workload in WORKLOADS.iter().filter(|workload| workload.name.contains(&only)) {
        let mut best = [f64::INFINITY; 5];
        for _ in 0..rounds {
            for (subject, best) in subjects.iter().zip(&mut best) {
                *best = best.min((workload.run)(subject.1));
            }
            let inside = gosched::run(|| (workload.run)(&ALLOC));
            best[4] = best[4].min(inside);
        }
        let [glibc, mimalloc, jemalloc, alloc, inside] = best;
        println!(
            "{:<20}{glibc:>9.1}{mimalloc:>10.1}{jemalloc:>10.1}{alloc:>9.1}{inside:>15.1}   {:.2}, {:.2} ({:.2})",
            workload.name,
            alloc / glibc,
            alloc / mimalloc,
            inside / glibc,
        );
    }
    if "hold".contains(&only) {
        hold::print();
    }
}
