//! The trait through which both backends show their tables. An implementation never changes the
//! tables, and never stops the world to read them.

use crate::gmp::g::G;
use crate::sched::inspect::types::{SchedStats, TraceHeader};
use std::fmt::{self, Write};

/// The tables of a backend. Reading them stops nothing and allocates nothing.
pub(crate) trait Tables {
    /// See [`TraceHeader`].
    fn head() -> TraceHeader;

    /// Fills in the fields of [`SchedStats`] that the backend has.
    fn fill_stats(numbers: &mut SchedStats);

    /// Returns the number of live goroutines.
    fn num_goroutines() -> usize;

    /// Returns the CPU time of the threads that run goroutines, in nanoseconds. On the threads
    /// backend: of the whole process.
    fn cpu_time() -> u64;

    /// Returns the length of a P's queue, and how many slices the P has started.
    fn length_and_tick(index: usize) -> (usize, u32);

    /// Writes a line for each P in use, in Go's format.
    fn write_ps(out: &mut dyn Write) -> fmt::Result;

    /// Writes a line for each M that has a thread, latest first, in Go's format.
    fn write_ms(out: &mut dyn Write) -> fmt::Result;

    /// Returns the id of the M that runs `g`.
    fn m_of(g: &'static G) -> Option<u64>;

    /// Returns the id of the M that `g` is locked to.
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
