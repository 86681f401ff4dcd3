//! Measures what a million parked goroutines cost: `cargo bench -p gosched-fiber --bench memory`.
//!
//! The number of goroutines can be given: `-- 100000`. A million takes 5 GB of memory.

use gosched_fiber::{Routine, Size, Stack, identity, stack, suspend};
use std::time::{Duration, Instant};

fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = text.lines().find(|line| line.starts_with(name)).expect("a line of status");
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("/proc").lines().count()
}

struct Before {
    resident: usize,
    tables: usize,
    start: Instant,
}

impl Before {
    fn now() -> Before {
        let (resident, tables) = (status("VmRSS:"), status("VmPTE:"));
        Before { resident, tables, start: Instant::now() }
    }

    fn report(&self, what: &str, count: usize) {
        let elapsed = self.start.elapsed();
        let each = |kilobytes: usize| kilobytes as f64 * 1024.0 / count as f64;
        let resident = each(status("VmRSS:") - self.resident);
        let tables = each(status("VmPTE:") - self.tables);
        println!(
            "{what}: {:.0} B each (resident {resident:.0}, page tables {tables:.0}), \
             {:.2} µs each, {} mappings",
            resident + tables,
            elapsed.as_secs_f64() * 1e6 / count as f64,
            mappings(),
        );
    }
}

fn main() {
    let count = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let size = Size::from_environment().expect("a stack size");
    println!("{count} goroutines, {} KiB apart, {} usable", size.spacing() >> 10, size.usable());

    let mut stacks: Vec<Stack> = Vec::with_capacity(count);
    let before = Before::now();
    for _ in 0..count {
        let stack = Stack::new(size).expect("a stack");
        // SAFETY: quiet — no other code uses this stack.
        unsafe { identity::create(&stack) }.expect("an identity");
        stacks.push(stack);
    }
    before.report("stacks with their top page touched (goal: 5120 B, under 1000 mappings)", count);
    drop(stacks);
    let start = Instant::now();
    let trimmed = stack::trim(Duration::ZERO);
    println!("trimmed {trimmed} in {:.1?}: {:?}", start.elapsed(), stack::stats());

    let mut routines: Vec<Routine<()>> = Vec::with_capacity(count);
    let before = Before::now();
    for _ in 0..count {
        let mut routine = Routine::new(size, suspend);
        routine.resume().expect("a stack");
        routines.push(routine);
    }
    before.report("routines suspended in their closure, closure and handle included", count);
    let start = Instant::now();
    for routine in &mut routines {
        routine.resume().expect("a stack");
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("all run to their end: {each:.2} µs each; {:?}", stack::stats());
    drop(routines);
    stack::trim(Duration::ZERO);
    println!("after trim: resident {} MB, {} mappings", status("VmRSS:") >> 10, mappings());
}
