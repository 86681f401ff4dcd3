//! How much of the Ps each goroutine gets, and how soon.

use crate::harness::{self, Heartbeat, MILLI, burn, burn_micros, hogs, is_over, spawn_group};
use gosched::sync::WaitGroup;
use gosched::{go, runtime, time, yield_now};
use gosched_tests::wait::LIMIT;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long main sleeps beside an endless loop. The suite `preempt` has the same number.
const ENDLESS_SLEEP: Duration = Duration::from_millis(200);

/// S131: main prints although the only P never becomes idle.
pub(crate) fn endless_loop() {
    go(|| {
        #[expect(clippy::empty_loop, reason = "it is what is tested")]
        loop {}
    });
    time::sleep(ENDLESS_SLEEP);
    println!("Done");
}

/// S132: the loop's even number is never 1.
pub(crate) fn never_one() {
    go(|| {
        let mut u: u64 = std::hint::black_box(1 << 40);
        loop {
            u = u.wrapping_sub(2);
            if u == 1 {
                break;
            }
        }
        println!("it was one");
    });
    time::after(5 * MILLI).recv().unwrap();
    println!("go 1.13 has never been here");
}

/// As many goroutines as there are Ps repeatedly start a goroutine, compute, and join it; they
/// continue with the same slice each time. Ends when each of ten yielding goroutines has run twenty
/// times, and prints how long that took.
pub(crate) fn spawn_and_join() {
    fn compute(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }
    for _ in 0..runtime::procs() {
        go(|| {
            loop {
                let child = go(|| compute(MILLI / 20));
                compute(MILLI * 3 / 2);
                child.join().unwrap();
            }
        });
    }
    let start = Instant::now();
    let others: Vec<_> = (0..10).map(|_| go(|| (0..20).for_each(|_| yield_now()))).collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    println!("all micros {}", start.elapsed().as_micros());
}

/// Returns Jain's index of the shares, in ten-thousandths: 10000 if all shares are equal.
fn fairness(shares: &[u64]) -> u64 {
    let shares: Vec<f64> = shares.iter().map(|&share| share as f64).collect();
    let (sum, squares) =
        shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (10_000.0 * sum * sum / (shares.len() as f64 * squares)) as u64
}

/// Measures how much work each hog does until the hogs were preempted ten times each on average.
pub(crate) fn fair(count: usize) {
    // Work counts only after all hogs have begun.
    static BEGIN: AtomicBool = AtomicBool::new(false);
    let begun = Arc::new(AtomicUsize::new(0));
    let its_begun = begun.clone();
    let all = spawn_group("a hog", count, move |_, lane: &Heartbeat| {
        let mut work = 0u64;
        its_begun.fetch_add(1, SeqCst);
        while !is_over() {
            burn(5000);
            work += u64::from(BEGIN.load(SeqCst));
            lane.step();
        }
        work
    });
    harness::wait_until("all hogs to begin", || begun.load(SeqCst) == count);
    let before = harness::preemptions();
    BEGIN.store(true, SeqCst);
    time::sleep(harness::case_duration());
    harness::wait_for_preemptions(|counts| {
        harness::is_moved_if_allowed(counts) && harness::preemptions() - before >= 10 * count as u64
    });
    harness::stop();
    let shares = all.join();
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    println!("jain {} least {least} most {most}", fairness(&shares));
}

/// Prints lateness in microseconds: the median, the 99th percentile, the maximum. `whose` precedes
/// each word.
fn print_lateness(whose: &str, mut late: Vec<Duration>) {
    late.sort_unstable();
    let at = |share: usize| late[(late.len() - 1) * share / 100].as_micros();
    let (count, p50, p99, most) = (late.len(), at(50), at(99), at(100));
    println!("{whose}ticks {count} {whose}p50 {p50} {whose}p99 {p99} {whose}most {most}");
}

/// Sleeps for a millisecond repeatedly until `enough` returns true. Returns how late each sleep
/// ended.
fn tick(sleep_until: fn(Instant), enough: impl Fn(usize) -> bool) -> Vec<Duration> {
    let lane = Heartbeat::new("one that sleeps");
    let mut late = Vec::new();
    while !enough(late.len()) {
        let due = Instant::now() + MILLI;
        sleep_until(due);
        late.push(due.elapsed());
        lane.step();
    }
    late
}

/// Main ticks for the case's duration, with an OS thread beside it. Prints how late both are.
fn tick_beside() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    const LEAST: usize = 20;
    let sleep = |due: Instant| std::thread::sleep(due.saturating_duration_since(Instant::now()));
    let thread =
        std::thread::spawn(move || tick(sleep, |count| count >= LEAST && IS_OVER.load(SeqCst)));
    let start = Instant::now();
    let late = tick(time::sleep_until, |count| {
        count >= LEAST && start.elapsed() >= harness::case_duration()
    });
    IS_OVER.store(true, SeqCst);
    print_lateness("control_", gosched::blocking(|| thread.join().unwrap()));
    print_lateness("", late);
}

/// Prints how many of 200 goroutines in the P's own queue run before main, which is preempted, runs
/// again.
pub(crate) fn order() {
    let ran = Arc::new(AtomicUsize::new(0));
    let all: Vec<_> = (0..200)
        .map(|_| {
            let ran = ran.clone();
            gosched::go(move || ran.fetch_add(1, SeqCst))
        })
        .collect();
    // Reads the counter once: this goroutine may be preempted again.
    let before = std::iter::repeat_with(|| ran.load(SeqCst)).find(|&count| count > 0);
    println!("before {}", before.unwrap());
    for handle in all {
        handle.join().unwrap();
    }
}

/// Many hogs all make progress, and so do main's timers, whose lateness is optionally measured.
pub(crate) fn many_hogs(count: usize, is_measured: bool) {
    let begun = Arc::new(AtomicUsize::new(0));
    let its_begun = begun.clone();
    let all = spawn_group("one of many hogs", count, move |_, lane: &Heartbeat| {
        burn(2000);
        lane.step();
        its_begun.fetch_add(1, SeqCst);
        while !is_over() {
            burn(2000);
            lane.step();
        }
        lane.steps()
    });
    harness::wait_until("all to begin", || begun.load(SeqCst) == count);
    if is_measured {
        tick_beside();
    }
    harness::wait_for_moves();
    let threads = runtime::num_threads();
    harness::stop();
    let shares = all.join();
    println!("least {} jain {} threads {threads}", shares.iter().min().unwrap(), fairness(&shares));
}

/// Measures how late a timer is beside `per_p` hogs per P.
pub(crate) fn ticker(per_p: usize) {
    let all = hogs(per_p * runtime::procs());
    tick_beside();
    harness::wait_for_preemptions(|_| true);
    harness::stop();
    all.join();
}

/// Two hogs per P: prints how often they are preempted while they use `micros` of CPU time. An OS
/// thread measures, since a goroutine's timer would preempt too. The thread sleeps for `pause`
/// repeatedly and counts its sleeps.
pub(crate) fn slice(micros: u64, pause: Duration) {
    let used = || harness::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
    let measure = move || {
        let lane = Heartbeat::new("a thread that measures");
        let (used_before, preempted_before) = (used(), harness::preemptions());
        while used() - used_before < Duration::from_micros(micros) {
            std::thread::sleep(pause);
            lane.step();
        }
        let (preempted, used) = (harness::preemptions() - preempted_before, used() - used_before);
        harness::stop();
        (preempted, used, lane.steps())
    };
    let begun = Arc::new(AtomicUsize::new(0));
    let its_begun = begun.clone();
    let all = spawn_group("a hog", 2 * runtime::procs(), move |_, lane: &Heartbeat| {
        its_begun.fetch_add(1, SeqCst);
        while !is_over() {
            burn(2000);
            lane.step();
        }
    });
    let measures = std::thread::spawn(move || {
        while begun.load(SeqCst) == 0 {
            std::thread::sleep(MILLI);
        }
        measure()
    });
    all.join();
    let (preempted, used, pauses) = measures.join().unwrap();
    println!("preempted {preempted} used {} pauses {pauses}", used.as_micros());
}

/// Other goroutines do not run inside `no_preempt`, although many slices pass, and they run again
/// afterwards.
pub(crate) fn no_preempt() {
    let count = Arc::new(AtomicU64::new(0));
    let its_count = count.clone();
    let other = go(move || {
        while !is_over() {
            its_count.fetch_add(1, SeqCst);
            burn(100);
        }
    });
    harness::wait_until("the other begins", || count.load(SeqCst) > 0);
    let (mut inside, mut outside) = (0, 0);
    let start = Instant::now();
    let mut rounds = 0;
    // On a busy machine sysmon may run late.
    while rounds < 3 || (outside == 0 && start.elapsed() < LIMIT) {
        rounds += 1;
        inside += runtime::no_preempt(|| {
            let before = count.load(SeqCst);
            burn_micros(20_000);
            count.load(SeqCst) - before
        });
        let before = count.load(SeqCst);
        burn_micros(20_000);
        outside += count.load(SeqCst) - before;
    }
    harness::stop();
    other.join().unwrap();
    println!("meanwhile {inside} afterwards {outside}");
}

/// Runs `count` goroutines of `micros` CPU time each. Prints the process's CPU time and threads.
pub(crate) fn many(count: usize, micros: u64, most_threads: usize) {
    runtime::set_max_threads(most_threads);
    let procs = runtime::procs();
    let over = Arc::new(AtomicBool::new(false));
    let its_over = over.clone();
    let sampler = std::thread::spawn(move || {
        let mut most = (0, 0);
        while !its_over.load(SeqCst) {
            most = (most.0.max(threads_of_the_process()), most.1.max(runtime::num_threads()));
            std::thread::sleep(MILLI);
        }
        most
    });
    let lane = Heartbeat::new("many goroutines");
    let (before, start) = (harness::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID), Instant::now());
    let (done, all) = (Arc::new(AtomicUsize::new(0)), WaitGroup::new());
    for _ in 0..count {
        let done = done.clone();
        all.go(move || {
            burn_micros(micros);
            done.fetch_add(1, SeqCst);
        });
    }
    while !all.wait_timeout(200 * MILLI) {
        lane.step();
    }
    let used = harness::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
    over.store(true, SeqCst);
    let (process, runtime) = sampler.join().unwrap();
    let work = Duration::from_micros(count as u64 * micros);
    println!(
        "done {} used {} took {} percent threads {process} ours {runtime}",
        done.load(SeqCst),
        used.as_micros(),
        start.elapsed().as_micros() * 100 * procs as u128 / work.as_micros(),
    );
}

/// Does the same work on as many OS threads as there are Ps, and prints its CPU time.
pub(crate) fn many_by_threads(count: usize, micros: u64) {
    let procs = runtime::procs();
    let before = harness::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
    std::thread::scope(|scope| {
        for _ in 0..procs {
            scope.spawn(|| (0..count / procs).for_each(|_| _ = burn_micros(micros)));
        }
    });
    let used = harness::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
    println!("used {}", used.as_micros());
}

fn threads_of_the_process() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("Threads:")).unwrap();
    line["Threads:".len()..].trim().parse().unwrap()
}
