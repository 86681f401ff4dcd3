//! The tables of the threads backend, which has no Ms and no Ps. Code here never takes a lock: it
//! reads atomics and a clock.

use crate::gmp::g::G;
use crate::sched::inspect::contract::Tables;
use crate::sched::inspect::types::{SchedStats, TraceHeader};
use crate::sched::state::backend::Threads;
use crate::sched::threads::{activity, timer_heap};
use crate::sys::clock;
use std::fmt::{self, Write};
use std::sync::atomic::Ordering;

impl Tables for Threads {
    fn head() -> TraceHeader {
        TraceHeader {
            procs: activity::procs(),
            threads: activity::num_goroutines(),
            ..TraceHeader::default()
        }
    }

    fn fill_stats(numbers: &mut SchedStats) {
        // `ACTIVE` also counts the timer thread while it fires timers, so `running` is limited to
        // the number of goroutines.
        let goroutines = activity::num_goroutines() as u64;
        numbers.created = activity::STARTED.load(Ordering::Relaxed);
        numbers.threads = goroutines;
        let active = u64::try_from(activity::ACTIVE.load(Ordering::Relaxed)).unwrap_or(0);
        numbers.running = active.min(goroutines);
        numbers.timers = timer_heap::num_timers() as u64;
    }

    fn num_goroutines() -> usize {
        activity::num_goroutines()
    }

    fn cpu_time() -> u64 {
        clock::process_cpu_time()
    }

    fn length_and_tick(_index: usize) -> (usize, u32) {
        (0, 0)
    }

    fn write_ps(_out: &mut dyn Write) -> fmt::Result {
        Ok(())
    }

    fn write_ms(_out: &mut dyn Write) -> fmt::Result {
        Ok(())
    }

    fn m_of(_g: &'static G) -> Option<u64> {
        None
    }

    fn locked_m_of(_g: &'static G) -> Option<u64> {
        None
    }
}
