//! All that can be counted about the scheduler, for `runtime::metrics`.

use crate::sched::inspect::cpu_use;
use crate::sched::{Backend, backend, events, moving, num_goroutines, procs, threads};

/// What there is now, and what has happened since the process began. Each was true at some moment while
/// they were read. Where goroutines are threads, what has no meaning is 0.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) procs: u64,
    pub(crate) idle_procs: u64,
    pub(crate) goroutines: u64,
    pub(crate) created: u64,
    /// Running or blocked outside the program's text, as far as that is known.
    pub(crate) not_in_go: u64,
    pub(crate) runnable: u64,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) threads: u64,
    pub(crate) idle_threads: u64,
    /// Threads whose P was taken.
    pub(crate) blocked_threads: u64,
    pub(crate) spinning_threads: u64,
    pub(crate) global_queue: u64,
    pub(crate) local_queues: u64,
    pub(crate) timers: u64,
    pub(crate) steals: u64,
    pub(crate) stolen: u64,
    /// Ps whose receiver was not woken: see `in_flight`.
    pub(crate) hand_offs_lost: u64,
    pub(crate) hand_offs_marked: u64,
    pub(crate) hand_offs_unmarked: u64,
    pub(crate) moved: u64,
    pub(crate) stopped_in_place: u64,
    pub(crate) put_off: u64,
    pub(crate) woken_by_io: u64,
    pub(crate) stacks: u64,
    pub(crate) resting_stacks: u64,
    /// Address space of stacks.
    pub(crate) stack_bytes: u64,
    /// See [`cpu_use::CpuUse`].
    pub(crate) cpu: cpu_use::CpuUse,
}

/// Counts.
pub(crate) fn numbers() -> Numbers {
    let mut numbers = Numbers::default();
    match backend() {
        Backend::MultiThread => moving::count(&mut numbers),
        Backend::Threads => threads::count(&mut numbers),
    }
    numbers.procs = procs() as u64;
    numbers.goroutines = num_goroutines() as u64;
    let known = numbers.not_in_go + numbers.runnable + numbers.running;
    numbers.waiting = numbers.goroutines.saturating_sub(known);
    numbers.woken_by_io = events::woken();
    numbers.cpu = cpu_use::cpu_use();
    numbers
}
