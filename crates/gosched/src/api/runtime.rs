//! The runtime as a whole: its settings, and dumps, hints and metrics of its goroutines and
//! threads.
//!
//! Inspection never needs the progress of a goroutine, so it also works in a deadlock.

use crate::block::sync::Mutex;
use crate::observe;
use crate::sched;
use crate::sys::{cpu_limit, forked};
use std::io;
use std::time::Duration;

pub use crate::block::exit::{PanicPolicy, set_panic_policy};
pub use crate::observe::hints::{Deadlock, Leak, LeakHints, Stuck};
pub use crate::observe::metrics::{Description, Histogram, Kind, Metrics, Value, descriptions};
pub use crate::sched::Backend;

/// Returns how goroutines are implemented in this process. The result never changes.
///
/// Starts the runtime if it has not started yet. The result is [`Backend::Threads`] in these cases:
///
/// - with the feature `threads`;
/// - on systems other than Linux on x86-64 with glibc;
/// - if the runtime finds at its start that it cannot give goroutines their own thread-locals (in a
///   library loaded by `dlopen`, under a sanitizer, or with a libc that it does not support), or
///   that the system refuses its first thread. In this case the runtime also prints one line with
///   the reason on standard error.
///
/// A program that depends on cheap goroutines can check the backend once and refuse to start:
///
/// ```
/// use gosched::runtime::{Backend, backend};
///
/// match backend() {
///     Backend::MultiThread => println!("a million goroutines are fine"),
///     Backend::Threads => println!("a few thousand goroutines are fine"),
/// }
/// assert_eq!(backend(), backend());
/// ```
pub fn backend() -> Backend {
    sched::backend()
}

/// Returns the maximum number of goroutines that run at the same time.
///
/// [`set_procs`] sets the number. Until then it is the value of `GOMAXPROCS` in the environment. If
/// that variable is not a positive number, the result is the number of CPUs that the process may
/// use, or the CPU limit of its container if that is lower. The limit is rounded up to a whole
/// number and counts as at least 2. In this case the runtime reads the CPUs and the limit again
/// every second while goroutines run; with [`Backend::Threads`], it reads them once.
#[doc(alias = "GOMAXPROCS")]
pub fn procs() -> usize {
    sched::procs()
}

/// Sets the maximum number of goroutines that run at the same time, and returns the previous
/// maximum.
///
/// All goroutines are stopped for a moment. Numbers above 4096 have the same effect as 4096. With
/// [`Backend::Threads`], the call only changes what [`procs`] returns.
///
/// # Panics
/// `n` is 0. To read the number, call [`procs`]. (Go reads it with `GOMAXPROCS(0)`.) Or this
/// process is a forked child.
#[doc(alias = "GOMAXPROCS")]
#[track_caller]
pub fn set_procs(n: usize) -> usize {
    assert!(n > 0, "`set_procs(0)`: the number must be at least 1; call `procs()` to read it");
    forked::refuse_in_child("`set_procs`");
    cpu_limit::fix_procs();
    // Callers wait here in the runtime's own mutex. Without it, hundreds of goroutines that change
    // the number at the same time would each keep a thread that polls for its turn to stop the
    // world.
    static CALLERS: Mutex<()> = Mutex::new(());
    let _turn = CALLERS.lock_no_unwind();
    sched::set_procs(n)
}

/// Sets the maximum number of threads that run goroutines, and returns the previous maximum.
///
/// Threads that are blocked in a call count too. The default is 10000. A program that needs more
/// threads, or already has more, ends with Go's message `thread exhaustion`. With
/// [`Backend::Threads`], the call does nothing and returns `usize::MAX`.
///
/// # Panics
/// `n` is 0: goroutines need at least one thread.
#[doc(alias = "SetMaxThreads")]
#[track_caller]
pub fn set_max_threads(n: usize) -> usize {
    assert!(n > 0, "`set_max_threads(0)`: goroutines need at least 1 thread");
    sched::set_max_threads(n)
}

/// Runs `f` without preemption of the calling goroutine: no other goroutine takes its place until
/// `f` returns, waits, or blocks.
///
/// Use it for a few microseconds of work that other goroutines spin for. While `f` runs, other
/// goroutines have one processor less to run on. Only an operation that stops all goroutines, such
/// as [`set_procs`], interrupts `f`. On an ordinary thread, and with [`Backend::Threads`],
/// `no_preempt` only calls `f`.
///
/// ```
/// let sum = gosched::runtime::no_preempt(|| (1..=10).sum::<u32>());
/// assert_eq!(sum, 55);
/// ```
pub fn no_preempt<R>(f: impl FnOnce() -> R) -> R {
    sched::no_preempt(f)
}

/// Returns the state and the stack of every goroutine, in Go's format.
///
/// The calling goroutine comes first, then the other goroutines in the order of their ids.
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
/// The program continues meanwhile. Each goroutine is shown as it was at one moment, and that
/// moment differs from goroutine to goroutine. A signal interrupts each running goroutine for a few
/// microseconds.
///
/// A dump does not interrupt a call that blocks the thread, with one exception: an unmarked call
/// (see [`blocking`](crate::blocking)) that begins just as the signal arrives may fail with
/// `EINTR`, if signals can interrupt such a call. For a goroutine that repeatedly blocks its thread
/// for 200 µs, this happens about once in several hundred dumps. For a goroutine in an unmarked
/// call, the dump sometimes shows only the innermost frames.
///
/// Function names come from the program's symbols. Files, line numbers and inlined functions come
/// from debug information, which cargo's release profile leaves out: set
/// `debug = "line-tables-only"` in `[profile.release]` to have them. In a stripped program a frame
/// is shown as `program+0x12`. With [`Backend::Threads`], there are no frames.
///
/// Frames of the scheduler and addresses are omitted, unless the environment variable `GOTRACEBACK`
/// is `system`, `crash` or at least 2, or the program is stripped. Functions of this crate that
/// wait are shown under their internal paths: `gosched::block::sync` is [`sync`](crate::sync).
#[doc(alias = "Stack")]
pub fn dump() -> String {
    observe::text()
}

/// Writes what [`dump`] returns to `out`, one goroutine after another.
///
/// The whole text is never in memory. It is written in pieces of about 8 KB, so `out` need not be
/// buffered.
///
/// # Errors
/// A write to `out` fails.
pub fn dump_to(out: &mut dyn io::Write) -> io::Result<()> {
    observe::write_text(out)
}

/// Returns all goroutines like [`dump`], with equal stacks merged, in the format of Go's
/// `/debug/pprof/goroutine?debug=1`.
///
/// Each stack is shown once, with the number of goroutines that have it. Goroutines with different
/// labels are not merged.
pub fn dump_folded() -> String {
    observe::folded()
}

/// Returns all goroutines like [`dump`], as JSON.
///
/// The text has the form `{"goroutines":[…]}`. The fields of each goroutine are `id`, `name`,
/// `state`, `wait_reason`, `waiting_ns`, `locked_to_thread`, `labels`, `parent`, `created_at`,
/// `frames` and `truncated`. The fields of each frame are `function`, `file`, `line` and `address`.
/// A value that is not known is `null`. `waiting_ns` is approximate. It is `null` if the goroutine
/// neither waits nor is in a blocking call, or if it is in an unmarked call (see
/// [`blocking`](crate::blocking)) whose start is not known. `truncated` is `true` if frames are
/// missing. The text has about 600 bytes per goroutine.
pub fn dump_json() -> String {
    observe::json()
}

/// Writes what [`dump_json`] returns to `out`, in the same way as [`dump_to`].
///
/// # Errors
/// A write to `out` fails.
pub fn dump_json_to(out: &mut dyn io::Write) -> io::Result<()> {
    observe::write_json(out)
}

/// Returns hints about goroutines that seem to be stuck: goroutines that wait for each other, and
/// goroutines that have waited for at least `older_than`, grouped by where they were started.
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
/// Two goroutines that wait for each other are printed as follows:
///
/// ```text
/// 2 goroutines wait for each other:
///     goroutine 7 [sync.Mutex.Lock] waits for goroutine 8, created at src/main.rs:12
///     goroutine 8 [sync.Mutex.Lock] waits for goroutine 7, created at src/main.rs:12
///     3 more goroutines wait for the above
/// ```
///
/// **Deadlocks.** Goroutines that wait for each other's [`Mutex`]es and
/// [`RwLock`](crate::sync::RwLock)s, or for each other to end, are reported at once. Such a
/// deadlock is certain. A goroutine that waits on a channel is considered only after it has waited
/// for `older_than`. It is deadlocked if stuck goroutines hold all opposite ends of its channels;
/// this is reported with the word "may". A goroutine counts as the holder of a channel end if it
/// was started with that end and still has it. Ends in other places (on the heap, or held by
/// ordinary threads) cannot be seen. If a channel has such an end, no deadlock is reported for it.
///
/// **Leaks.** All goroutines that have waited for at least `older_than` are reported, unless they
/// sleep, or wait with a time limit for a channel, a goroutine or a type of [`sync`](crate::sync).
/// (Waits for I/O, and [`park_timeout`](crate::park_timeout), are reported even if they have a time
/// limit.) A goroutine may wait for a long time on purpose, but many waiting goroutines from the
/// same place are rarely intended. For a goroutine that waits on a channel, the hint also states if
/// no other goroutine seems to hold the opposite end. For example, a goroutine that loops over a
/// receiver and itself keeps a sender of the same channel waits forever.
///
/// The program continues meanwhile, as for [`dump`]. With [`Backend::Threads`], only leaks are
/// reported. With `GODEBUG=leakhints=1`, a program that ends because all goroutines are asleep, or
/// because of SIGQUIT, prints its deadlocks at the end of its dump.
pub fn leak_hints(older_than: Duration) -> LeakHints {
    observe::hints::leak_hints(older_than)
}

/// Returns the number of CPUs that the process may use. The number is read when this function is
/// first called.
#[doc(alias = "NumCPU")]
pub fn num_cpu() -> usize {
    cpu_limit::num_cpu()
}

/// Returns the number of goroutines that exist.
#[doc(alias = "NumGoroutine")]
pub fn num_goroutines() -> usize {
    sched::num_goroutines()
}

/// Returns the number of threads of the runtime, including idle threads. Returns 0 if the runtime
/// has not started yet.
///
/// The number includes the threads that run goroutines and the two helper threads of the scheduler
/// (`gosched-sysmon`, `gosched-spawner`). It does not include the thread of
/// [`signal`](crate::signal) or the program's own threads. With [`Backend::Threads`], the number is
/// that of [`num_goroutines`].
pub fn num_threads() -> usize {
    sched::num_threads()
}

/// Returns the current values of all metrics of the scheduler. [`descriptions`] lists the metrics.
///
/// [`num_goroutines`] and [`num_threads`] return the two most common values,
/// `/sched/goroutines:goroutines` and `/sched/threads/total:threads`.
///
/// Every processor of the scheduler has its own counts, which this function adds up without
/// stopping goroutines. While goroutines run, the counts may therefore be slightly inconsistent
/// with each other.
///
/// ```
/// use gosched::runtime::{Metrics, Value, metrics};
///
/// let before = metrics();
/// gosched::go(|| ()).join().unwrap();
/// let after = metrics();
/// let created = |metrics: &Metrics| match metrics.get("/sched/goroutines-created:goroutines") {
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

/// Returns the state of the scheduler in the format of Go's `GODEBUG=schedtrace`.
///
/// The first line is what `GODEBUG=schedtrace=1000` prints every second. After it comes a line for
/// each P (processor), M (thread) and G (goroutine), as with `scheddetail=1`. Goroutines that have
/// ended, and whose records are kept for reuse, have status 6, as in Go. With [`Backend::Threads`],
/// there are no lines for Ps and Ms.
///
/// ```
/// let text = gosched::runtime::sched_trace();
/// assert!(text.starts_with("SCHED ") && text.contains(" gomaxprocs="));
/// ```
pub fn sched_trace() -> String {
    observe::sched_trace::sched_trace()
}
