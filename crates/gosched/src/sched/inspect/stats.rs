//! Reads all counts and totals of the scheduler, for `runtime::metrics`. This module never counts
//! an event: it reads the counts that other modules keep.

use crate::sched::events;
use crate::sched::inspect::contract::of_backend;
use crate::sched::inspect::cpu_use;
use crate::sched::inspect::types::SchedStats;

/// Reads the counts and totals of the backend, and of I/O and CPU time.
pub(crate) fn read_stats() -> SchedStats {
    let mut numbers = SchedStats::default();
    of_backend!(fill_stats(&mut numbers));
    numbers.procs = of_backend!(head()).procs as u64;
    numbers.goroutines = of_backend!(num_goroutines()) as u64;
    let known = numbers.not_in_go + numbers.runnable + numbers.running;
    numbers.waiting = numbers.goroutines.saturating_sub(known);
    numbers.woken_by_io = events::woken();
    numbers.cpu = cpu_use::cpu_use();
    numbers
}
