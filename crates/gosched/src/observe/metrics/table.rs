//! The table of all metrics: name, kind, what it says, and where it is read.
//!
//! Go's names mean what they mean in Go. There is no garbage collector here, so what Go tells about it is 0,
//! and there for those who add things up.

use super::Kind::{Float64, Histogram as Distribution, Uint64};
use super::{Description, Histogram, Value, seconds};
use crate::probe::histogram::Durations;
use crate::probe::times::{Times, times};
use crate::sched::{SchedStats, read_stats};

/// What all metrics of one snapshot are made of.
#[derive(Debug)]
pub(super) struct Sample {
    numbers: SchedStats,
    times: Times,
    none: Durations,
}

impl Sample {
    pub(super) fn now() -> Sample {
        Sample { numbers: read_stats(), times: times(), none: Durations::new() }
    }
}

/// The kind of a metric goes with what its reader returns.
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

        /// What reads each of [`DESCRIPTIONS`].
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
    "Always 0: what giving memory back takes is not told apart."
    "/cpu/classes/scavenge/background:cpu-seconds" Float64 true _seen => 0;
    "Always 0: what giving memory back takes is not told apart."
    "/cpu/classes/scavenge/total:cpu-seconds" Float64 true _seen => 0;
    "Always 0: what giving memory back takes is not told apart."
    "/cpu/classes/total:cpu-seconds" Float64 true seen => seen.numbers.cpu.user + seen.numbers.cpu.idle;
    "Estimated total available CPU time for goroutines: GOMAXPROCS integrated over the time since the runtime started. Sum of all metrics in /cpu/classes."
    "/cpu/classes/user:cpu-seconds" Float64 true seen => seen.numbers.cpu.user;
    "CPU time of the threads that run goroutines, as the system counts it; the scheduler's share is included."

    "/gosched/hand-offs/lost:events" Uint64 true seen => seen.numbers.hand_offs_lost;
    "How often a thread slept on although the right to run was handed to it, until it was woken again. Always 0, unless the runtime has a defect."
    "/gosched/hand-offs/marked:events" Uint64 true seen => seen.numbers.hand_offs_marked;
    "How often the right to run was taken from a thread in a marked call (`blocking`, files)."
    "/gosched/hand-offs/unmarked:events" Uint64 true seen => seen.numbers.hand_offs_unmarked;
    "How often the right to run was taken from a thread that was blocked in a call nobody marked."
    "/gosched/poller/wake-ups:goroutines" Uint64 true seen => seen.numbers.woken_by_io;
    "Count of goroutines, and threads among them, that were made ready by I/O."
    "/gosched/preemptions/in-place:events" Uint64 true seen => seen.numbers.stopped_in_place;
    "How often a goroutine was stopped together with its thread."
    "/gosched/preemptions/moved:events" Uint64 true seen => seen.numbers.moved;
    "How often a goroutine was interrupted in the program's own text, to go on on any thread."
    "/gosched/preemptions/put-off:events" Uint64 true seen => seen.numbers.put_off;
    "How often a request to stop was put off, since the goroutine was outside the program's own text."
    "/gosched/procs/idle:threads" Uint64 false seen => seen.numbers.idle_procs;
    "How many more threads could run goroutines at the moment."
    "/gosched/run-queue/global:goroutines" Uint64 false seen => seen.numbers.global_queue;
    "Length of the queue that all threads share."
    "/gosched/run-queue/local:goroutines" Uint64 false seen => seen.numbers.local_queues;
    "Length of the queues of all Ps together, with those that are to run next."
    "/gosched/stacks/in-use:stacks" Uint64 false seen => seen.numbers.stacks;
    "Count of stacks of goroutines, with those that Ps keep for the next ones."
    "/gosched/stacks/reserved:bytes" Uint64 false seen => seen.numbers.stack_bytes;
    "Address space of all stacks; memory is taken for what is touched of them."
    "/gosched/stacks/resting:stacks" Uint64 false seen => seen.numbers.resting_stacks;
    "Count of stacks that wait for use."
    "/gosched/steals:events" Uint64 true seen => seen.numbers.steals;
    "How often a P took goroutines from the queue of another."
    "/gosched/stolen:goroutines" Uint64 true seen => seen.numbers.stolen;
    "Count of goroutines taken in /gosched/steals:events."
    "/gosched/threads/blocked:threads" Uint64 false seen => seen.numbers.blocked_threads;
    "Count of threads that lost the right to run while they were blocked, and are not back."
    "/gosched/threads/idle:threads" Uint64 false seen => seen.numbers.idle_threads;
    "Count of threads that sleep since there is nothing to run."
    "/gosched/threads/spinning:threads" Uint64 false seen => seen.numbers.spinning_threads;
    "Count of threads that look for goroutines to run."
    "/gosched/timers:timers" Uint64 false seen => seen.numbers.timers;
    "Count of timers that were started and are not due."

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
    "Distribution of the time goroutines have spent in the scheduler in a runnable state before actually running, of one in about 1000. Bucket counts increase monotonically."
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
    "Approximate cumulative time goroutines have spent blocked on a Mutex or RwLock: of one wait in about 1000, times as many."
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
