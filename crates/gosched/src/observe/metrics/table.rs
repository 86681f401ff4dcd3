//! The table of all metrics: name, kind, whether it is cumulative, how it is read, and its
//! description.
//!
//! Go's names mean what they mean in Go. There is no garbage collector here, so Go's metrics about
//! it are 0. They are included for programs that add up a group of metrics.
//!
//! The table never counts anything itself: `sched` and `probe` do.

use super::Kind::{Float64, Histogram as Distribution, Uint64};
use super::{Description, Histogram, Value, seconds};
use crate::probe::histogram::Durations;
use crate::probe::times::{Times, times};
use crate::sched::{SchedStats, read_stats};

/// The data that all metrics of one snapshot are computed from.
#[derive(Debug)]
pub(super) struct Sample {
    numbers: SchedStats,
    times: Times,
    /// An empty distribution.
    none: Durations,
}

impl Sample {
    pub(super) fn now() -> Sample {
        Sample { numbers: read_stats(), times: times(), none: Durations::new() }
    }
}

/// Converts what a metric's reader returns to the metric's kind. A `Float64` is read in nanoseconds
/// and converted to seconds.
macro_rules! value {
    (Uint64, $value:expr) => {
        Value::Uint64($value)
    };
    (Float64, $value:expr) => {
        Value::Float64(seconds($value))
    };
    (Distribution, $value:expr) => {
        Value::Histogram(Histogram::new(&$value))
    };
}

macro_rules! metrics {
    ($($name:literal $kind:ident $cumulative:literal $seen:ident => $value:expr; $words:literal)+) => {
        pub(super) static DESCRIPTIONS: &[Description] = &[$(Description {
            name: $name,
            description: $words,
            kind: $kind,
            cumulative: $cumulative,
        }),+];

        /// Returns the descriptions of all metrics, sorted by name.
        ///
        /// ```
        /// for metric in gosched::runtime::descriptions() {
        ///     println!("{}: {}", metric.name, metric.description);
        /// }
        /// ```
        ///
        /// | name | description |
        /// |---|---|
        $(#[doc = concat!("| `", $name, "` | ", $words, " |")])+
        #[doc(alias = "All")]
        pub fn descriptions() -> &'static [Description] {
            DESCRIPTIONS
        }

        /// The readers of the metrics, in the order of [`DESCRIPTIONS`].
        pub(super) static READ: &[fn(&Sample) -> Value] = &[$(|$seen| value!($kind, $value)),+];
    };
}

metrics! {
    "/cpu/classes/gc/mark/assist:cpu-seconds" Float64 true _seen => 0;
    "Always 0: there is no garbage collector."
    "/cpu/classes/gc/mark/dedicated:cpu-seconds" Float64 true _seen => 0;
    "Always 0: there is no garbage collector."
    "/cpu/classes/gc/mark/idle:cpu-seconds" Float64 true _seen => 0;
    "Always 0: there is no garbage collector."
    "/cpu/classes/gc/pause:cpu-seconds" Float64 true _seen => 0;
    "Always 0: there is no garbage collector."
    "/cpu/classes/gc/total:cpu-seconds" Float64 true _seen => 0;
    "Always 0: there is no garbage collector."
    "/cpu/classes/idle:cpu-seconds" Float64 true seen => seen.numbers.cpu.idle;
    "Estimated total available CPU time that goroutines did not use: the part of /cpu/classes/total:cpu-seconds that was unused."
    "/cpu/classes/scavenge/assist:cpu-seconds" Float64 true _seen => 0;
    "Always 0: the CPU time for returning memory to the system is not measured separately."
    "/cpu/classes/scavenge/background:cpu-seconds" Float64 true _seen => 0;
    "Always 0: the CPU time for returning memory to the system is not measured separately."
    "/cpu/classes/scavenge/total:cpu-seconds" Float64 true _seen => 0;
    "Always 0: the CPU time for returning memory to the system is not measured separately."
    "/cpu/classes/total:cpu-seconds" Float64 true seen => seen.numbers.cpu.user + seen.numbers.cpu.idle;
    "Estimated total available CPU time for goroutines: GOMAXPROCS integrated over the time since the runtime started. Sum of all metrics in /cpu/classes."
    "/cpu/classes/user:cpu-seconds" Float64 true seen => seen.numbers.cpu.user;
    "CPU time of the threads that run goroutines, as the system counts it; the scheduler's share is included."

    "/gosched/hand-offs/lost:events" Uint64 true seen => seen.numbers.hand_offs_lost;
    "Number of times a thread kept sleeping after a P was handed off to it, and had to be woken again. Always 0, unless the runtime has a defect."
    "/gosched/hand-offs/marked:events" Uint64 true seen => seen.numbers.hand_offs_marked;
    "Number of times a P was taken from a thread in a marked call (`blocking`, files)."
    "/gosched/hand-offs/unmarked:events" Uint64 true seen => seen.numbers.hand_offs_unmarked;
    "Number of times a P was taken from a thread that was blocked in an unmarked call."
    "/gosched/poller/wake-ups:goroutines" Uint64 true seen => seen.numbers.woken_by_io;
    "Count of goroutines and ordinary threads that were woken by I/O."
    "/gosched/preemptions/in-place:events" Uint64 true seen => seen.numbers.stopped_in_place;
    "Number of times a goroutine was preempted by stopping its thread."
    "/gosched/preemptions/moved:events" Uint64 true seen => seen.numbers.moved;
    "Number of times a goroutine was preempted in the program's own code, so that it can continue on any thread."
    "/gosched/preemptions/put-off:events" Uint64 true seen => seen.numbers.put_off;
    "Number of times a preemption was deferred because the goroutine was outside the program's own code."
    "/gosched/procs/idle:threads" Uint64 false seen => seen.numbers.idle_procs;
    "Count of idle Ps: how many more threads could run goroutines at the moment."
    "/gosched/run-queue/global:goroutines" Uint64 false seen => seen.numbers.global_queue;
    "Length of the global run queue, which all Ps share."
    "/gosched/run-queue/local:goroutines" Uint64 false seen => seen.numbers.local_queues;
    "Total length of the run queues of all Ps, including the goroutines that run next."
    "/gosched/stacks/in-use:stacks" Uint64 false seen => seen.numbers.stacks;
    "Count of goroutine stacks, including the stacks that Ps keep for new goroutines."
    "/gosched/stacks/reserved:bytes" Uint64 false seen => seen.numbers.stack_bytes;
    "Address space of all stacks. Only the parts that were used take memory."
    "/gosched/stacks/resting:stacks" Uint64 false seen => seen.numbers.resting_stacks;
    "Count of stacks that are free for reuse."
    "/gosched/steals:events" Uint64 true seen => seen.numbers.steals;
    "Number of times a P stole goroutines from the run queue of another P."
    "/gosched/stolen:goroutines" Uint64 true seen => seen.numbers.stolen;
    "Total number of goroutines moved by /gosched/steals:events."
    "/gosched/threads/blocked:threads" Uint64 false seen => seen.numbers.blocked_threads;
    "Count of threads whose P was taken while they were blocked, and that have not returned yet."
    "/gosched/threads/idle:threads" Uint64 false seen => seen.numbers.idle_threads;
    "Count of threads that sleep because there is nothing to run."
    "/gosched/threads/spinning:threads" Uint64 false seen => seen.numbers.spinning_threads;
    "Count of threads that look for goroutines to run."
    "/gosched/timers:timers" Uint64 false seen => seen.numbers.timers;
    "Count of timers that were started and have not fired yet."

    "/sched/gomaxprocs:threads" Uint64 false seen => seen.numbers.procs;
    "How many threads can run goroutines at the same time: `runtime::procs`, Go's GOMAXPROCS."
    "/sched/goroutines-created:goroutines" Uint64 true seen => seen.numbers.created;
    "Count of goroutines created since program start."
    "/sched/goroutines/not-in-go:goroutines" Uint64 false seen => seen.numbers.not_in_go;
    "Approximate count of goroutines in a marked call, or in another call that has blocked their thread. Not guaranteed to add up to /sched/goroutines:goroutines with other goroutine metrics."
    "/sched/goroutines/runnable:goroutines" Uint64 false seen => seen.numbers.runnable;
    "Approximate count of goroutines ready to execute, but not executing. Not guaranteed to add up to /sched/goroutines:goroutines with other goroutine metrics."
    "/sched/goroutines/running:goroutines" Uint64 false seen => seen.numbers.running;
    "Approximate count of goroutines executing. Not guaranteed to add up to /sched/goroutines:goroutines with other goroutine metrics."
    "/sched/goroutines/waiting:goroutines" Uint64 false seen => seen.numbers.waiting;
    "Approximate count of goroutines waiting on a resource (I/O or sync primitives). Not guaranteed to add up to /sched/goroutines:goroutines with other goroutine metrics."
    "/sched/goroutines:goroutines" Uint64 false seen => seen.numbers.goroutines;
    "Count of live goroutines."
    "/sched/latencies:seconds" Distribution true seen => seen.times.time_to_run;
    "Distribution of the time goroutines have spent in the scheduler in a runnable state before actually running, for a sample of about one in 1000. Bucket counts increase monotonically."
    "/sched/pauses/stopping/gc:seconds" Distribution true seen => seen.none;
    "Always empty: there is no garbage collector."
    "/sched/pauses/stopping/other:seconds" Distribution true seen => seen.times.stopping;
    "Distribution of individual stop-the-world stopping latencies. This is the time it takes from deciding to stop the world until all Ps are stopped. Bucket counts increase monotonically."
    "/sched/pauses/total/gc:seconds" Distribution true seen => seen.none;
    "Always empty: there is no garbage collector."
    "/sched/pauses/total/other:seconds" Distribution true seen => seen.times.stopped;
    "Distribution of individual stop-the-world pause latencies. This is the time from deciding to stop the world until the world is started again. Bucket counts increase monotonically."
    "/sched/threads/total:threads" Uint64 false seen => seen.numbers.threads;
    "The current count of live threads that are owned by the runtime."
    "/sync/mutex/wait/total:seconds" Float64 true seen => seen.times.mutex_wait_nanos;
    "Approximate cumulative time goroutines have spent blocked on a Mutex or RwLock, extrapolated from a sample of about one wait in 1000."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_the_order_of_their_names() {
        assert!(DESCRIPTIONS.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(DESCRIPTIONS.len(), READ.len());
    }
}
