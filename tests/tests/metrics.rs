//! Metrics: each metric changes when the event that it counts happens, and not otherwise. The text
//! is valid for Prometheus.
//!
//! The tests run one at a time, because metrics count events of the whole process.

use gosched::runtime::{self, Histogram, Kind, Metrics, Value, descriptions, metrics};
use gosched::{go, park, run, yield_now};
use gosched_tests::lock_contention::contend_for_locks;
use gosched_tests::wait::{self, LIMIT};
use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits until no other test reads metrics, and keeps the other tests out until the guard is
/// dropped.
fn lock_metrics() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const IS_MULTI_THREAD: bool = !cfg!(feature = "threads");

fn count_in(metrics: &Metrics, name: &str) -> u64 {
    match metrics.get(name) {
        Some(Value::Uint64(count)) => *count,
        other => panic!("{name}: {other:?}"),
    }
}

fn count(name: &str) -> u64 {
    count_in(&metrics(), name)
}

fn amount(name: &str) -> f64 {
    match metrics().get(name) {
        Some(Value::Float64(amount)) => *amount,
        other => panic!("{name}: {other:?}"),
    }
}

fn histogram(name: &str) -> Histogram {
    match metrics().get(name) {
        Some(Value::Histogram(histogram)) => histogram.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

/// Repeats `step` until `done` returns true.
///
/// # Panics
/// `done` does not return true within [`LIMIT`].
fn until(what: &str, mut done: impl FnMut() -> bool, mut step: impl FnMut()) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "{what}: {}", metrics().to_prometheus());
        step();
    }
}

fn short_pause() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Runs `f` with this number of Ps.
fn with_procs<R>(procs: usize, f: impl FnOnce() -> R) -> R {
    let before = runtime::set_procs(procs);
    let result = f();
    runtime::set_procs(before);
    result
}

/// Goroutines that are parked until `end` is called.
struct Parked(Vec<gosched::JoinHandle<()>>);

impl Parked {
    fn new(count: usize) -> Parked {
        Parked((0..count).map(|_| go(park)).collect())
    }

    fn end(self) {
        for handle in self.0 {
            handle.goroutine().unpark();
            handle.join().unwrap();
        }
    }
}

const GOROUTINES: &str = "/sched/goroutines:goroutines";
const WAITING: &str = "/sched/goroutines/waiting:goroutines";
const CREATED: &str = "/sched/goroutines-created:goroutines";
const LATENCIES: &str = "/sched/latencies:seconds";
const STEALS: &str = "/gosched/steals:events";
const MARKED: &str = "/gosched/hand-offs/marked:events";
const UNMARKED: &str = "/gosched/hand-offs/unmarked:events";
const WOKEN: &str = "/gosched/poller/wake-ups:goroutines";
const MUTEX: &str = "/sync/mutex/wait/total:seconds";
const USER: &str = "/cpu/classes/user:cpu-seconds";
const IDLE: &str = "/cpu/classes/idle:cpu-seconds";

#[test]
fn every_metric_has_a_description_and_its_kind() {
    let _turn = lock_metrics();
    let seen = metrics();
    assert!(descriptions().is_sorted_by(|a, b| a.name < b.name));
    assert_eq!(seen.iter().count(), descriptions().len());
    for ((name, value), metric) in seen.iter().zip(descriptions()) {
        assert_eq!(name, metric.name);
        assert!(!metric.description.is_empty() && name.starts_with('/'));
        assert_eq!(name.matches(':').count(), 1, "{name}: one unit");
        assert_eq!(seen.get(name), Some(value));
        let kind = match value {
            Value::Uint64(_) => Kind::Uint64,
            Value::Float64(_) => Kind::Float64,
            _ => Kind::Histogram,
        };
        assert_eq!(kind, metric.kind, "{name}");
    }
    for unknown in ["", "/sched/latencies", "/sched/latencies:minutes", "zzz"] {
        assert_eq!(seen.get(unknown), None);
    }
}

/// Go's names of metrics about the scheduler, from Go 1.27's `metrics/description.go`.
#[test]
fn all_scheduler_metrics_of_go_exist() {
    let _turn = lock_metrics();
    let seen = metrics();
    for name in [
        "/cpu/classes/gc/mark/assist:cpu-seconds",
        "/cpu/classes/gc/total:cpu-seconds",
        "/cpu/classes/idle:cpu-seconds",
        "/cpu/classes/scavenge/total:cpu-seconds",
        "/cpu/classes/total:cpu-seconds",
        "/cpu/classes/user:cpu-seconds",
        "/sched/gomaxprocs:threads",
        "/sched/goroutines-created:goroutines",
        "/sched/goroutines/not-in-go:goroutines",
        "/sched/goroutines/runnable:goroutines",
        "/sched/goroutines/running:goroutines",
        "/sched/goroutines/waiting:goroutines",
        "/sched/goroutines:goroutines",
        "/sched/latencies:seconds",
        "/sched/pauses/stopping/gc:seconds",
        "/sched/pauses/stopping/other:seconds",
        "/sched/pauses/total/gc:seconds",
        "/sched/pauses/total/other:seconds",
        "/sched/threads/total:threads",
        "/sync/mutex/wait/total:seconds",
    ] {
        assert!(seen.get(name).is_some(), "{name}");
    }
}

#[test]
fn goroutines_are_counted_by_state() {
    let _turn = lock_metrics();
    until("others have ended", || count(GOROUTINES) == 0, short_pause);
    let (created, before) = (count(CREATED), count(WAITING));
    assert_eq!(before, 0);
    let parked = Parked::new(100);
    until("all of them wait", || count(WAITING) == 100, short_pause);
    let seen = metrics();
    assert_eq!(count_in(&seen, GOROUTINES), 100);
    assert_eq!(count_in(&seen, CREATED), created + 100);
    assert_eq!(count_in(&seen, "/sched/goroutines/runnable:goroutines"), 0);
    parked.end();
    until("all of them have ended", || count(GOROUTINES) == 0, short_pause);
    assert_eq!((count(WAITING), count(CREATED)), (0, created + 100));
}

#[test]
fn a_goroutine_counts_as_running_again_after_a_wait_that_timed_out() {
    let _turn = lock_metrics();
    let running = run(|| {
        for _ in 0..20 {
            let (_sender, receiver) = gosched::chan::chan::<u32>(0);
            assert!(receiver.recv_timeout(Duration::from_millis(1)).is_err());
        }
        count("/sched/goroutines/running:goroutines")
    });
    assert!(running >= 1, "the goroutine that reads the metric runs");
}

#[test]
fn running_goroutines_and_goroutines_in_a_call_are_counted() {
    let _turn = lock_metrics();
    until("others have ended", || count(GOROUTINES) == 0, short_pause);
    let running = run(|| count("/sched/goroutines/running:goroutines"));
    assert!(running >= 1, "at least who asks");
    if !IS_MULTI_THREAD {
        return;
    }
    let not_in_go = "/sched/goroutines/not-in-go:goroutines";
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let calls = go(move || gosched::blocking(|| ended.recv().is_ok()));
    until("it is in a marked call", || count(not_in_go) == 1, short_pause);
    end.send(()).unwrap();
    assert!(calls.join().unwrap());
    until("it is not any more", || count(not_in_go) == 0, short_pause);
    // A goroutine in an unmarked call is counted once its P has been taken.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let before = count(UNMARKED);
    let calls = go(move || ended.recv().is_ok());
    until("its P was taken", || count(not_in_go) == 1 && count(UNMARKED) > before, short_pause);
    assert!(count("/gosched/threads/blocked:threads") >= 1);
    end.send(()).unwrap();
    assert!(calls.join().unwrap());
    until("it is back", || count(not_in_go) == 0, short_pause);
}

#[test]
fn runnable_goroutines_are_counted_by_run_queue() {
    let _turn = lock_metrics();
    if !IS_MULTI_THREAD {
        return assert_eq!(count("/gosched/run-queue/local:goroutines"), 0);
    }
    let (seen, handles) = with_procs(1, || {
        run(|| {
            runtime::no_preempt(|| {
                let handles: Vec<_> = (0..400).map(|_| go(|| ())).collect();
                (metrics(), handles)
            })
        })
    });
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    let local = count_in(&seen, "/gosched/run-queue/local:goroutines");
    let global = count_in(&seen, "/gosched/run-queue/global:goroutines");
    let runnable = count_in(&seen, "/sched/goroutines/runnable:goroutines");
    // A local queue has room for 256 goroutines.
    assert!(local > 100 && global > 100, "{local} {global}");
    assert!(runnable >= 400 && runnable == local + global, "{runnable}: {local} {global}");
    let empty = || count("/gosched/run-queue/local:goroutines") == 0;
    until("the queues are empty again", empty, short_pause);
}

#[test]
fn pauses_are_recorded_once_for_each_stop() {
    let _turn = lock_metrics();
    let names = ["/sched/pauses/stopping/other:seconds", "/sched/pauses/total/other:seconds"];
    let procs = runtime::procs();
    // After this call, only this test changes the number of Ps.
    runtime::set_procs(procs);
    let stops = if IS_MULTI_THREAD { 20 } else { 0 };
    // On a busy machine an attempt to stop the world may fail. It is recorded too, and repeated.
    let (before, after) = wait::retry(|| {
        let before = names.map(histogram);
        for _ in 0..10 {
            runtime::set_procs(procs + 1);
            assert_eq!(count("/sched/gomaxprocs:threads"), procs as u64 + 1);
            runtime::set_procs(procs);
            assert_eq!(count("/sched/gomaxprocs:threads"), procs as u64);
        }
        let after = names.map(histogram);
        let recorded = [0, 1].map(|at| after[at].count() - before[at].count());
        assert!(recorded[0] == recorded[1] && recorded[0] >= stops, "{recorded:?}");
        let is_exact = recorded[0] == stops;
        if is_exact { Ok((before, after)) } else { Err(format!("{recorded:?}")) }
    });
    let took = |at: usize| after[at].sum - before[at].sum;
    assert!(took(0) <= took(1) && (stops == 0 || took(0) > 0.0), "{} {}", took(0), took(1));
    for gc in ["/sched/pauses/stopping/gc:seconds", "/sched/pauses/total/gc:seconds"] {
        assert_eq!((histogram(gc).count(), histogram(gc).sum), (0, 0.0));
    }
}

/// Runs goroutines that yield `times` times in total.
fn yield_often(goroutines: u64, times: u64) {
    let handles: Vec<_> = (0..goroutines)
        .map(|_| go(move || (0..times / goroutines).for_each(|_| yield_now())))
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

#[test]
fn one_wait_for_a_p_in_about_1000_is_measured() {
    let _turn = lock_metrics();
    const TIMES: u64 = 200_000;
    let before = histogram(LATENCIES);
    with_procs(1, || run(|| yield_often(7, TIMES)));
    let after = histogram(LATENCIES);
    let measured = after.count() - before.count();
    if !IS_MULTI_THREAD {
        return assert_eq!(measured, 0);
    }
    assert!((TIMES / 2000..TIMES / 500).contains(&measured), "{measured}");
    assert!(after.sum > before.sum);
    for (at, count) in after.counts.iter().enumerate() {
        assert!(*count >= before.counts[at], "counts only grow");
    }
    // Each wait is counted in its bucket, so the sum is at least the sum of the lower bounds.
    let grown = after.counts.iter().zip(&before.counts).map(|(after, before)| after - before);
    let least: f64 =
        grown.zip(&after.buckets).filter(|(grown, _)| *grown > 0).map(|(n, b)| n as f64 * b).sum();
    assert!(least <= after.sum - before.sum + 1e-9, "{least}");
    // A new goroutine also waits for a P: one such wait in 1024 is measured.
    let before = after.count();
    run(|| (0..10_000).for_each(|_| go(|| ()).join().unwrap()));
    let measured = histogram(LATENCIES).count() - before;
    assert!(measured >= 5, "{measured}");
}

#[test]
fn a_long_wait_for_a_p_is_in_a_late_bucket() {
    if !IS_MULTI_THREAD {
        return;
    }
    let _turn = lock_metrics();
    let late = |histogram: &Histogram| {
        let late = histogram.buckets.iter().position(|&bound| bound >= 0.4e-3).unwrap();
        histogram.counts[late..].iter().sum::<u64>()
    };
    let before = late(&histogram(LATENCIES));
    with_procs(1, || {
        run(|| {
            let seen = || late(&histogram(LATENCIES)) > before;
            until("a late one is measured", seen, || {
                for _ in 0..100 {
                    let waits = runtime::no_preempt(|| {
                        let waits = go(|| ());
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_millis(1) {
                            std::hint::spin_loop();
                        }
                        waits
                    });
                    waits.join().unwrap();
                }
            });
        });
    });
}

#[test]
fn metrics_do_not_change_while_the_process_is_idle() {
    let _turn = lock_metrics();
    until("others have ended", || count(GOROUTINES) == 0, short_pause);
    let still = |seen: &Metrics| -> Vec<Value> {
        let cumulative = descriptions().iter().filter(|metric| metric.cumulative);
        let ours = cumulative.filter(|metric| !metric.name.starts_with("/cpu/"));
        ours.map(|metric| seen.get(metric.name).unwrap().clone()).collect()
    };
    // Threads of the runtime may have some work left. Activity that never ends would show up within
    // a second.
    let is_quiet = || {
        let before = still(&metrics());
        std::thread::sleep(Duration::from_secs(1));
        still(&metrics()) == before
    };
    until("two looks are alike", is_quiet, || ());
}

#[test]
fn steals_are_counted_where_there_is_more_than_one_p() {
    let _turn = lock_metrics();
    if !IS_MULTI_THREAD {
        return assert_eq!(count(STEALS), 0);
    }
    let before = with_procs(1, || {
        let before = count(STEALS);
        run(|| yield_often(10, 10_000));
        assert_eq!(count(STEALS), before, "there is nobody to steal from");
        before
    });
    with_procs(3, || {
        let stole = || count(STEALS) > before;
        until("somebody steals", stole, || {
            run(|| {
                let handles: Vec<_> = (0..200).map(|_| go(|| std::hint::black_box(0))).collect();
                handles.into_iter().for_each(|handle| _ = handle.join().unwrap());
            })
        });
    });
    let seen = metrics();
    assert!(count_in(&seen, "/gosched/stolen:goroutines") >= count_in(&seen, STEALS));
}

#[test]
fn hand_offs_are_counted_as_marked_and_unmarked() {
    if !IS_MULTI_THREAD {
        return;
    }
    let _turn = lock_metrics();
    let (marked, unmarked) = (count(MARKED), count(UNMARKED));
    run(|| (0..10).for_each(|_| gosched::blocking_now(|| ())));
    assert_eq!(count(MARKED), marked + 10);
    // The call lasts until sysmon takes its P. For a while, sysmon does not take a P that no
    // goroutine needs.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let calls = go(move || ended.recv().is_ok());
    until("a P was taken", || count(UNMARKED) > unmarked, short_pause);
    end.send(()).unwrap();
    assert!(calls.join().unwrap());
}

#[test]
fn preemptions_are_counted() {
    if !IS_MULTI_THREAD {
        return;
    }
    let _turn = lock_metrics();
    let names = ["/gosched/preemptions/moved:events", "/gosched/preemptions/in-place:events"];
    let sum = || names.iter().map(|name| count(name)).sum::<u64>();
    let before = sum();
    with_procs(1, || {
        run(|| {
            let over = Arc::new(AtomicBool::new(false));
            let hog = go({
                let over = over.clone();
                move || {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            });
            // The caller waits for the P that `hog` holds.
            until("one was preempted", || sum() > before, yield_now);
            over.store(true, Ordering::Relaxed);
            hog.join().unwrap();
        });
    });
}

#[test]
fn goroutines_woken_by_io_are_counted() {
    let _turn = lock_metrics();
    let before = count(WOKEN);
    run(|| yield_often(4, 1000));
    assert_eq!(count(WOKEN), before, "there was no I/O");
    run(|| {
        let listener = gosched::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = go(move || listener.accept().unwrap());
        until("it waits", || count(WAITING) >= 1, yield_now);
        let client = gosched::net::TcpStream::connect(address).unwrap();
        let accepted = server.join().unwrap();
        drop((client, accepted));
    });
    assert!(count(WOKEN) > before);
}

/// Only about 80 waits are measured here, and each stands for a thousand. If the machine stops a
/// thread during a wait, a wait that is not measured may be longer than all measured ones. So the
/// test compares the sum with what this number of waits takes at least and at most. The bench
/// `limits` measures the accuracy.
#[test]
fn waits_for_locks_are_added_up() {
    let _turn = lock_metrics();
    let before = amount(MUTEX);
    run(|| contend_for_locks(1, 1000));
    assert_eq!(amount(MUTEX), before, "nobody waited");
    if !IS_MULTI_THREAD {
        return;
    }
    const STEPS: usize = 40_000;
    const EACH_STANDS_FOR: f64 = 1000.0;
    let (before, latencies) = (amount(MUTEX), histogram(LATENCIES).count());
    let waits = with_procs(1, || run(|| contend_for_locks(2, STEPS)));
    let told = amount(MUTEX) - before;
    // After each wait for a lock, the goroutine waits for the P.
    let measured = histogram(LATENCIES).count() - latencies;
    assert!((STEPS as u64 / 1000..STEPS as u64 / 250).contains(&measured), "{measured}");
    let sum = |wait: Duration| measured as f64 * EACH_STANDS_FOR * wait.as_secs_f64();
    let (short, longest) = (waits[waits.len() / 10], waits[waits.len() - 1]);
    assert!(told > sum(short) / 4.0, "{told} s, of {measured} waits: more than {short:?}");
    assert!(told < sum(longest) * 2.0, "{told} s, of {measured} waits: up to {longest:?}");
}

#[test]
fn cpu_time_is_either_user_or_idle() {
    let _turn = lock_metrics();
    let user = amount(USER);
    let burn = || {
        run(|| {
            let mut sum = 0u64;
            (0..2_000_000u64).for_each(|number| sum = std::hint::black_box(sum ^ number));
            sum
        });
    };
    until("it is used", || amount(USER) > user + 0.02, burn);
    let idle = amount(IDLE);
    until("it is idle", || amount(IDLE) > idle + 0.02, short_pause);
    let seen = metrics();
    let value = |name| match seen.get(name) {
        Some(Value::Float64(value)) => *value,
        other => panic!("{other:?}"),
    };
    let parts: f64 = descriptions()
        .iter()
        .filter(|metric| metric.name.starts_with("/cpu/classes/"))
        .filter(|metric| !metric.name.contains("total"))
        .map(|metric| value(metric.name))
        .sum();
    assert!((parts - value("/cpu/classes/total:cpu-seconds")).abs() < 1e-6);
}

/// Reads a clock of the kernel.
fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a `timespec`.
    assert_eq!(unsafe { libc::clock_gettime(id, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn the_cpu_time_of_a_thread_that_ends_is_not_counted_twice() {
    if !IS_MULTI_THREAD {
        return;
    }
    let _turn = lock_metrics();
    const EACH: Duration = Duration::from_millis(20);
    const PAIRS: u64 = if cfg!(debug_assertions) { 15 } else { 40 };
    // Many threads, so that reading the metrics takes a while.
    let (reads, end) = std::io::pipe().unwrap();
    let reads = Arc::new(reads);
    let blocked: Vec<_> = (0..300)
        .map(|_| {
            let reads = reads.clone();
            go(move || gosched::blocking(|| (&*reads).read(&mut [0]).unwrap()))
        })
        .collect();
    let all_block = || count("/sched/goroutines/not-in-go:goroutines") == 300;
    until("all of them block", all_block, short_pause);
    let burn = || {
        gosched::lock_os_thread();
        while clock(libc::CLOCK_THREAD_CPUTIME_ID) < EACH {
            std::hint::spin_loop();
        }
        // The goroutine ends while it is locked to its thread, so the thread ends, too.
    };
    // Returns the CPU time of other threads that the metric does not contain. This value only
    // grows. A reading is too high if a thread burns CPU time meanwhile, because the clock of the
    // process is read last, or if a thread ends meanwhile and is missing in the metric.
    let besides = || {
        let user = amount(USER);
        let own = clock(libc::CLOCK_THREAD_CPUTIME_ID);
        (clock(libc::CLOCK_PROCESS_CPUTIME_ID) - own).as_secs_f64() - user
    };
    let mut least = f64::NEG_INFINITY;
    for _ in 0..PAIRS {
        let look = || {
            let now = besides();
            assert!(now > least - EACH.as_secs_f64() / 2.0, "{now} s, and before {least}");
            now
        };
        // No thread burns CPU time here. The threads of the last pair may end, and each distorts at
        // most one reading.
        let least_now = (0..8).map(|_| look()).fold(f64::INFINITY, f64::min);
        let ended = Arc::new(AtomicU64::new(0));
        let pair = [(); 2].map(|()| {
            let ended = ended.clone();
            go(move || {
                burn();
                ended.fetch_add(1, Ordering::Relaxed);
            })
        });
        while ended.load(Ordering::Relaxed) < 2 {
            look();
        }
        pair.into_iter().for_each(|handle| handle.join().unwrap());
        least = least_now;
    }
    drop(end);
    blocked.into_iter().for_each(|handle| assert_eq!(handle.join().unwrap(), 0));
}

#[test]
fn threads_stacks_and_timers_are_counted() {
    let _turn = lock_metrics();
    run(yield_now);
    let threads = || count("/sched/threads/total:threads") == runtime::num_threads() as u64;
    until("both say the same", threads, short_pause);
    if !IS_MULTI_THREAD {
        return; // a thread that sleeps needs no timer
    }
    let timers = "/gosched/timers:timers";
    let before = count(timers);
    let hour = Duration::from_secs(3600);
    let sleepers: Vec<_> = (0..20).map(|_| go(move || gosched::park_timeout(hour))).collect();
    until("all sleep", || count(timers) >= before + 20, short_pause);
    assert!(count("/gosched/stacks/in-use:stacks") >= 20);
    assert!(count("/gosched/stacks/reserved:bytes") >= 20 * 4096);
    for sleeper in sleepers {
        sleeper.goroutine().unpark();
        sleeper.join().unwrap();
    }
    until("they are stopped", || count(timers) == before, short_pause);
    let idle = || {
        let seen = metrics();
        count_in(&seen, "/gosched/procs/idle:threads")
            == count_in(&seen, "/sched/gomaxprocs:threads")
            && count_in(&seen, "/gosched/threads/idle:threads") > 0
            && count_in(&seen, "/gosched/threads/spinning:threads") == 0
    };
    until("all are idle", idle, short_pause);
}

#[test]
fn cumulative_metrics_never_decrease_under_load() {
    let _turn = lock_metrics();
    let over = Arc::new(AtomicBool::new(false));
    let lock = Arc::new(gosched::sync::Mutex::new(0));
    let load: Vec<_> = (0..6u64)
        .map(|number| {
            let (over, lock) = (over.clone(), lock.clone());
            go(move || {
                while !over.load(Ordering::Relaxed) {
                    match number % 3 {
                        0 => go(yield_now).join().unwrap(),
                        1 => *lock.lock() += 1,
                        _ => (),
                    }
                    yield_now();
                }
            })
        })
        .collect();
    const LOOKS: u32 = if cfg!(debug_assertions) { 300 } else { 1000 };
    let look = || {
        let mut last = metrics();
        for round in 0..LOOKS {
            let seen = metrics();
            for metric in descriptions().iter().filter(|metric| metric.cumulative) {
                assert_grown(metric.name, last.get(metric.name), seen.get(metric.name));
            }
            if round % 100 == 0 {
                check_text(&seen);
            }
            last = seen;
        }
    };
    look();
    go(look).join().unwrap();
    over.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|handle| handle.join().unwrap());
}

fn assert_grown(name: &str, last: Option<&Value>, now: Option<&Value>) {
    let grown = match (last, now) {
        (Some(Value::Uint64(last)), Some(Value::Uint64(now))) => last <= now,
        (Some(Value::Float64(last)), Some(Value::Float64(now))) => last <= now,
        (Some(Value::Histogram(last)), Some(Value::Histogram(now))) => {
            assert_eq!(now.buckets.len(), now.counts.len() + 1);
            last.counts.iter().zip(&now.counts).all(|(last, now)| last <= now)
                && last.sum <= now.sum
        }
        _ => false,
    };
    assert!(grown, "{name}: {last:?}, then {now:?}");
}

/// A metric in Prometheus's text format.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    /// Suffix of the name, label `le` if present, and value.
    samples: Vec<(String, Option<f64>, f64)>,
}

/// Parses the text format 0.0.4, as strictly as its specification: help and type come first, once,
/// and the samples of a metric are contiguous.
fn parse(text: &str) -> HashMap<String, Family> {
    let is_name = |name: &str| {
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':');
        first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    assert!(text.ends_with('\n') && !text.contains('\r'), "every line ends with a line feed");
    let mut families: HashMap<String, Family> = HashMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(is_name(name), "{line}");
            let mut rest = help.chars();
            while let Some(c) = rest.next() {
                assert!(c != '\\' || matches!(rest.next(), Some('\\' | 'n')), "{line}");
            }
            let family = Family { help: help.to_owned(), ..Family::default() };
            assert!(families.insert(name.to_owned(), family).is_none(), "twice: {name}");
            current = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, current);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            let family = families.get_mut(name).unwrap();
            assert!(family.kind.is_empty() && family.samples.is_empty());
            family.kind = kind.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, le) = match sample.split_once('{') {
                None => (sample, None),
                Some((name, labels)) => {
                    let le = labels.strip_prefix("le=\"").unwrap().strip_suffix("\"}").unwrap();
                    (name, Some(number(le)))
                }
            };
            assert!(is_name(name), "{line}");
            let family = families.get_mut(&current).unwrap();
            let suffix = name.strip_prefix(&*current).unwrap_or_else(|| panic!("{line}"));
            let right = match family.kind.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
                _ => suffix.is_empty() && family.samples.is_empty(),
            };
            assert!(right && le.is_some() == (suffix == "_bucket"), "{line}");
            family.samples.push((suffix.to_owned(), le, number(value)));
        }
    }
    families
}

/// Parses a number as Go's `ParseFloat` does.
fn number(text: &str) -> f64 {
    if text == "+Inf" {
        return f64::INFINITY;
    }
    assert!(text.starts_with(|c: char| c.is_ascii_digit() || c == '-'), "{text}");
    text.parse().unwrap()
}

/// Checks that the text contains the values in `seen`.
fn check_text(seen: &Metrics) {
    let mut families = parse(&seen.to_prometheus());
    for metric in descriptions() {
        let words = metric.name.replace(['/', ':', '-'], "_");
        let prefix = if words.starts_with("_gosched_") { "" } else { "go" };
        let counter = metric.cumulative && metric.kind != Kind::Histogram;
        let name = format!("{prefix}{words}{}", if counter { "_total" } else { "" });
        let name = name.trim_start_matches('_');
        let family = families.remove(name).unwrap_or_else(|| panic!("no {name}"));
        assert!(family.help.ends_with(&format!("Sourced from {}.", metric.name)));
        let value = family.samples[0].2;
        match seen.get(metric.name).unwrap() {
            Value::Uint64(count) => assert_eq!(value, *count as f64, "{name}"),
            Value::Float64(amount) => assert_eq!(value, *amount, "{name}"),
            Value::Histogram(histogram) => {
                assert_eq!(family.kind, "histogram");
                check_buckets(histogram, &family);
            }
            _ => unreachable!(),
        }
        let kind = if counter { "counter" } else { "gauge" };
        assert!(family.kind == kind || metric.kind == Kind::Histogram, "{name}");
    }
    assert!(families.is_empty(), "{families:?}");
}

fn check_buckets(histogram: &Histogram, family: &Family) {
    let buckets: Vec<_> = family.samples.iter().filter(|sample| sample.0 == "_bucket").collect();
    let rest: Vec<_> = family.samples.iter().filter(|sample| sample.0 != "_bucket").collect();
    assert!(buckets.len() > 10 && rest.len() == 2);
    assert!(buckets.is_sorted_by(|a, b| a.1 < b.1 && a.2 <= b.2), "cumulative");
    assert_eq!(buckets.last().unwrap().1, Some(f64::INFINITY));
    let total = histogram.count() as f64;
    assert_eq!(buckets.last().unwrap().2, total);
    assert_eq!((rest[0].0.as_str(), rest[0].2), ("_sum", histogram.sum));
    assert_eq!((rest[1].0.as_str(), rest[1].2), ("_count", total));
    for (_, le, value) in &buckets {
        let below = histogram.buckets[1..].iter().zip(&histogram.counts);
        let below: u64 = below
            .filter(|(bound, _)| bound.next_down() <= le.unwrap())
            .map(|(_, count)| count)
            .sum();
        assert_eq!(*value, below as f64, "{le:?}");
    }
}

#[test]
fn the_text_is_valid_for_prometheus() {
    let _turn = lock_metrics();
    run(|| yield_often(5, 5000));
    runtime::set_procs(runtime::procs() + 1);
    runtime::set_procs(runtime::procs() - 1);
    check_text(&metrics());
    let text = metrics().to_prometheus();
    assert!(text.contains("# TYPE go_sched_latencies_seconds histogram\n"), "{text}");
    assert!(text.contains("\ngo_sched_latencies_seconds_bucket{le=\"+Inf\"} "), "{text}");
    assert!(text.contains("# TYPE gosched_steals_events_total counter\n"), "{text}");
}

#[test]
fn counts_of_many_goroutines_are_exact_when_they_have_ended() {
    let _turn = lock_metrics();
    until("others have ended", || count(GOROUTINES) == 0, short_pause);
    let before = count(CREATED);
    let ran = Arc::new(AtomicU64::new(0));
    let each = if IS_MULTI_THREAD { 2500 } else { 50 };
    run({
        let ran = ran.clone();
        move || {
            let handles: Vec<_> = (0..4)
                .map(|_| {
                    let ran = ran.clone();
                    go(move || {
                        for _ in 0..each {
                            let ran = ran.clone();
                            go(move || _ = ran.fetch_add(1, Ordering::Relaxed)).join().unwrap();
                        }
                    })
                })
                .collect();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        }
    });
    assert_eq!(ran.load(Ordering::Relaxed), 4 * each);
    // `run` creates one goroutine, and its closure creates four.
    until("all have ended", || count(GOROUTINES) == 0, short_pause);
    assert_eq!(count(CREATED), before + 4 * each + 5);
}
