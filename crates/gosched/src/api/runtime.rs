//! The runtime as a whole: how many Ps, goroutines and threads there are.

use crate::observe;
use crate::sched;
use crate::sys::cpu_limit;
use std::io;

pub use crate::block::exit::{PanicPolicy, set_panic_policy};
pub use crate::observe::metrics::{Description, Histogram, Kind, Metrics, Value, descriptions};

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

/// What all goroutines do, as Go prints it: the calling goroutine first, then the others in the order of their ids.
///
/// ```
/// gosched::run(|| {
///     let (tx, rx) = gosched::chan::<u32>(0);
///     let waits = gosched::go(move || rx.recv());
///     let is_seen = || gosched::runtime::dump().contains(" [chan receive]:");
///     while !is_seen() {
///         gosched::yield_now();
///     }
///     drop(tx);
///     assert!(waits.join().unwrap().is_err());
/// });
/// ```
///
/// The program goes on meanwhile: each goroutine is shown as it was at one moment, and the moments of two are not
/// the same. Goroutines that run are interrupted for some microseconds. A call that blocks the thread is not ended
/// by this; of one that nobody marked ([`blocking`](crate::blocking)) only the innermost frames may be known.
///
/// Frames of the runtime are left out, unless the environment says `GOTRACEBACK=system`. Functions, files and lines
/// are as good as the program's debug information; a program without any shows how far from the beginning of its
/// file the code is. Where goroutines are threads, there are no frames.
#[doc(alias = "Stack")]
pub fn dump() -> String {
    observe::text()
}

/// Writes what [`dump`] returns, one goroutine after the other: nothing is kept.
///
/// # Errors
/// `out` refuses.
pub fn dump_to(out: &mut dyn io::Write) -> io::Result<()> {
    observe::write_text(out)
}

/// As [`dump`], with equal stacks once, and how many goroutines have them: the form of Go's
/// `/debug/pprof/goroutine?debug=1`.
pub fn dump_folded() -> String {
    observe::folded()
}

/// As [`dump`], for programs that read: `{"goroutines":[…]}`, with `id`, `name`, `state`, `wait_reason`,
/// `waiting_ns` (about), `locked_to_thread`, `labels`, `parent`, `created_at`, `frames` and `truncated`
/// of each.
pub fn dump_json() -> String {
    observe::json()
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

/// What there is to count and to measure about the scheduler, now. [`descriptions`] says what.
///
/// Counts were kept where things happen, one for each P, and are added up here; nothing is stopped. So they
/// need not fit together to the last one while goroutines run.
///
/// ```
/// use gosched::runtime::{Value, metrics};
///
/// let before = metrics();
/// gosched::go(|| ()).join().unwrap();
/// let after = metrics();
/// let created = |metrics: &gosched::runtime::Metrics| match metrics.get("/sched/goroutines-created:goroutines") {
///     Some(Value::Uint64(count)) => *count,
///     other => unreachable!("{other:?}"),
/// };
/// assert_eq!(created(&after), created(&before) + 1);
/// assert!(after.to_prometheus().contains("# TYPE go_sched_latencies_seconds histogram"));
/// ```
#[doc(alias = "Read")]
pub fn metrics() -> Metrics {
    observe::metrics::metrics()
}

/// The scheduler in Go's words: the line that `GODEBUG=schedtrace=1000` prints every second, then a line for
/// each P, M and G, as `scheddetail=1` has them. Goroutines that ended, and whose records wait for the next
/// ones, have status 6, as in Go. Where goroutines are threads there are no Ps and Ms.
///
/// ```
/// let text = gosched::runtime::sched_trace();
/// assert!(text.starts_with("SCHED ") && text.contains(" gomaxprocs="));
/// ```
pub fn sched_trace() -> String {
    observe::sched_trace::sched_trace()
}
