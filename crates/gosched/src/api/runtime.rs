//! The runtime as a whole: how many Ps, goroutines and threads there are.

use crate::sched;
use crate::sys::cpu_limit;

pub use crate::block::exit::{PanicPolicy, set_panic_policy};

/// How many goroutines run at the same time, at most.
///
/// It is `GOMAXPROCS` from the environment, or else the number of CPUs the process may use, or what the
/// container's CPU limit allows if that is less (but not less than 2). Those are looked at again every
/// second while goroutines run, until [`set_procs`] is called.
#[doc(alias = "GOMAXPROCS")]
pub fn procs() -> usize {
    sched::procs()
}

/// Changes [`procs`]; returns what it was. The world is stopped for a moment. Goroutines lose nothing
/// but time. More than 4096 are taken for 4096. Where goroutines are threads it only changes what [`procs`] says.
///
/// # Panics
/// `n` is 0: ask with [`procs`]. (Go asks with `GOMAXPROCS(0)`.)
#[doc(alias = "GOMAXPROCS")]
#[track_caller]
pub fn set_procs(n: usize) -> usize {
    assert!(n > 0, "`set_procs(0)`: goroutines need at least 1 P; to ask, call `procs()`");
    cpu_limit::fix();
    sched::set_procs(n)
}

/// Changes how many threads may run goroutines at most, those included that are blocked in a call; returns
/// what it was: 10000 at first. A program that needs more ends, with Go's message. Where goroutines are
/// threads it does nothing.
///
/// # Panics
/// `n` is 0.
#[doc(alias = "SetMaxThreads")]
#[track_caller]
pub fn set_max_threads(n: usize) -> usize {
    assert!(n > 0, "`set_max_threads(0)`: goroutines need at least 1 thread");
    sched::set_max_threads(n)
}

/// Runs `f` without its goroutine being preempted: it keeps its P until `f` ends, waits, or blocks.
///
/// For a few microseconds of work that others spin for. Others wait meanwhile, so an `f` that never ends
/// keeps its P for ever.
///
/// ```
/// let sum = gosched::runtime::no_preempt(|| (1..=10).sum::<u32>());
/// assert_eq!(sum, 55);
/// ```
pub fn no_preempt<R>(f: impl FnOnce() -> R) -> R {
    sched::without_preemption(f)
}

/// How many CPUs the process may use.
#[doc(alias = "NumCPU")]
pub fn num_cpu() -> usize {
    cpu_limit::num_cpu()
}

/// How many goroutines there are.
#[doc(alias = "NumGoroutine")]
pub fn num_goroutines() -> usize {
    sched::num_goroutines()
}

/// How many threads the runtime has, idle ones too.
pub fn num_threads() -> usize {
    sched::num_threads()
}
