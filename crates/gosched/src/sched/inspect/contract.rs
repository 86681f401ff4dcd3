//! What each backend tells of its tables.

use crate::gmp::g::G;
use crate::sched::inspect::types::{SchedStats, TraceHeader};
use std::fmt::{self, Write};

/// Fulfilled by both backends. Nothing is stopped for an answer, and nothing is allocated.
pub(crate) trait Tables {
    /// See [`TraceHeader`].
    fn head() -> TraceHeader;

    /// Fills in what the backend knows of [`SchedStats`].
    fn fill_stats(numbers: &mut SchedStats);

    /// Goroutines that live.
    fn num_goroutines() -> usize;

    /// How long the threads that run goroutines have run, in nanoseconds.
    fn cpu_time() -> u64;

    /// The length of a P's queue, and how often the P started a slice.
    fn length_and_tick(index: usize) -> (usize, u32);

    /// A line for each P in use, in Go's format.
    fn write_ps(out: &mut dyn Write) -> fmt::Result;

    /// A line for each M that has a thread, latest first, in Go's format.
    fn write_ms(out: &mut dyn Write) -> fmt::Result;

    /// The number of the M that runs `g`.
    fn m_of(g: &'static G) -> Option<u64>;

    /// The number of the M that `g` has locked.
    fn locked_m_of(g: &'static G) -> Option<u64>;
}

/// Calls a function of [`Tables`] for the backend of this process.
macro_rules! of_backend {
    ($function:ident($($argument:expr),*)) => {{
        use $crate::sched::inspect::contract::Tables;
        use $crate::sched::state::backend::{Backend, MultiThread, Threads, chosen};
        match chosen() {
            Some(Backend::MultiThread) => MultiThread::$function($($argument),*),
            Some(Backend::Threads) | None => Threads::$function($($argument),*),
        }
    }};
}

pub(super) use of_backend;
