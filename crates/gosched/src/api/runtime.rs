//! The runtime as a whole: how many Ps, goroutines and threads there are.

use crate::observe;
use crate::sched;
use crate::sys::cpu_limit;
use std::io;
use std::time::Duration;

pub use crate::block::exit::{PanicPolicy, set_panic_policy};
pub use crate::observe::hints::{Deadlock, Leak, LeakHints, Stuck};
pub use crate::observe::metrics::{Description, Histogram, Kind, Metrics, Value, descriptions};
pub use crate::sched::Backend;

/// What goroutines are in this process. Starts the runtime; the answer never changes.
///
/// [`Backend::Threads`] is what a program gets with the feature `threads`, on a system without a
/// port, and where the runtime finds at its start that goroutines cannot have thread-locals of
/// their own: in a library loaded by `dlopen`, under ThreadSanitizer, with a libc it does not
/// understand. In the last case the runtime also prints one line on standard error that says why.
///
/// A program that depends on cheap goroutines can check once and refuse to start:
///
/// ```
/// use gosched::runtime::{Backend, backend};
///
/// match backend() {
///     Backend::MultiThread => println!("a million goroutines are fine"),
///     Backend::Threads => println!("some thousand goroutines are fine"),
/// }
/// assert_eq!(backend(), backend());
/// ```
pub fn backend() -> Backend {
    sched::backend()
}

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
    cpu_limit::fix_procs();
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
    sched::no_preempt(f)
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
/// the same. Goroutines that run are interrupted for some microseconds, by a signal. A call that blocks the thread is
/// not ended by this; but one that nobody marked ([`blocking`](crate::blocking)), and that begins at that very moment,
/// may be: with `EINTR`, as after any signal, where it is of a kind that a signal ends. Of goroutines that block their
/// threads again and again for 200 µs, one in some hundred looks is hit. Of a call that nobody marked only the
/// innermost frames may be known, in some functions.
///
/// Frames of the runtime are left out, and so are addresses, unless the environment says `GOTRACEBACK=system`.
/// Functions, files and lines are as good as the program's debug information; a program without any shows how far from the beginning of its
/// file the code is. Where goroutines are threads, there are no frames.
#[doc(alias = "Stack")]
pub fn dump() -> String {
    observe::text()
}

/// Writes what [`dump`] returns, one goroutine after the other: nothing is kept. Some 8 KB at a time: `out` need not
/// be buffered.
///
/// # Errors
/// `out` refuses.
pub fn dump_to(out: &mut dyn io::Write) -> io::Result<()> {
    observe::write_text(out)
}

/// As [`dump`], with equal stacks once, and how many goroutines have them: the form of Go's
/// `/debug/pprof/goroutine?debug=1`. Of goroutines with labels of their own each is one of a kind.
pub fn dump_folded() -> String {
    observe::folded()
}

/// As [`dump`], for programs that read: `{"goroutines":[…]}`, with `id`, `name`, `state`, `wait_reason`,
/// `waiting_ns` (about; `null` where it does not wait, or is in a call that nobody marked and it is not known since
/// when), `locked_to_thread`, `labels`, `parent`, `created_at`, `frames` and `truncated` of each. One text: some 600
/// bytes for each goroutine.
pub fn dump_json() -> String {
    observe::json()
}

/// Writes what [`dump_json`] returns, as [`dump_to`] does.
///
/// # Errors
/// `out` refuses.
pub fn dump_json_to(out: &mut dyn io::Write) -> io::Result<()> {
    observe::write_json(out)
}

/// What looks wrong among goroutines that wait: ones that wait for each other, and ones that have waited for
/// `older_than` or longer, by where they were started.
///
/// ```
/// use std::time::Duration;
///
/// gosched::run(|| {
///     let (tx, rx) = gosched::chan::<u32>(0);
///     let waits = gosched::go(move || rx.recv());
///     let leak = loop {
///         let hints = gosched::runtime::leak_hints(Duration::from_millis(1));
///         match hints.leaks.into_iter().find(|leak| leak.goroutines.contains(&waits.id())) {
///             Some(leak) => break leak,
///             None => gosched::yield_now(),
///         }
///     };
///     assert!(leak.to_string().starts_with("1 goroutine has waited for up to "), "{leak}");
///     drop(tx);
///     assert!(waits.join().unwrap().is_err());
/// });
/// ```
///
/// Two that wait for each other are told so:
///
/// ```text
/// 2 goroutines wait for each other:
///     goroutine 7 [sync.Mutex.Lock] waits for goroutine 8, created at src/main.rs:12
///     goroutine 8 [sync.Mutex.Lock] waits for goroutine 7, created at src/main.rs:12
///     3 more wait for that
/// ```
///
/// **Deadlocks.** Goroutines that hold [`Mutex`](crate::sync::Mutex)es and [`RwLock`](crate::sync::RwLock)s and wait for
/// each other's, or for each other's end, are told at once, and without a doubt. Channels are considered when a
/// goroutine has waited for `older_than`: an end of a channel is taken for that of a goroutine that was started with
/// it and has it still; if those are all there are, and all of them wait for each other, then that is told with a
/// "may". Ends in other places (in the heap, with ordinary threads) are not seen: then nothing is told.
///
/// **Leaks.** All that have waited for so long, unless the time will end that. It may be what they are for; many from one
/// place rarely are. Of those at a channel it is told if no other goroutine is seen to hold the other end: one
/// that loops over a receiver, and keeps a sender of the same channel itself, waits for ever.
///
/// The program goes on meanwhile, as for [`dump`]. Where goroutines are threads only leaks are told.
/// With `GODEBUG=leakhints=1` a program that ends because all goroutines are asleep, or by SIGQUIT, tells its deadlocks
/// at the end of its dump.
pub fn leak_hints(older_than: Duration) -> LeakHints {
    observe::hints::leak_hints(older_than)
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
