//! Measures what preemption does for goroutines that wait, and what it costs goroutines that
//! compute:
//! `cargo bench -p gosched --bench preempt`.
//!
//! `-- fairness many ticker nothing` selects parts: each runs for its full time, or for a short
//! time with `quick`. Without a selection, all parts run for a short time. `seconds=5` sets how
//! long the hogs of `fairness` run (1000 hogs run ten times as long), `n=50000` sets how many
//! goroutines `many` starts.

use gosched::__rules::{Preemptions, preemptions};
use gosched::{JoinHandle, go, runtime, time};
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The allocator that `#[gosched::main]` installs.
#[global_allocator]
static ALLOC: gosched::alloc::Alloc = gosched::alloc::Alloc::new();

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let has = |name: &str| arguments.iter().any(|word| word == name);
    let number = |key: &str| {
        let mut numbers = arguments.iter().filter_map(|word| word.strip_prefix(key));
        numbers.find_map(|number| number.parse::<u64>().ok())
    };
    if has(CHILD) {
        return gosched::run(|| loop_alone(number("steps=").unwrap_or(1)));
    }
    let all = !PARTS.iter().any(|part| has(part));
    let quick = all || has("quick");
    let chosen = |part| all || has(part);
    println!("{} Ps{}", runtime::procs(), if quick { ", quick" } else { "" });
    println!("{:<10} {:<24} {:<12} result", "part", "what", "goal");
    if chosen("fairness") {
        let seconds = number("seconds=").unwrap_or(if quick { 1 } else { 5 });
        gosched::run(|| fairness(Duration::from_secs(seconds)));
    }
    if chosen("many") {
        let n = number("n=").unwrap_or(if quick { 500 } else { 50_000 });
        gosched::run(|| many(n));
    }
    if chosen("ticker") {
        let window = Duration::from_millis(if quick { 1500 } else { 3000 });
        gosched::run(|| [1, 4].into_iter().for_each(|each| ticker(each, window)));
    }
    if chosen("nothing") {
        nothing(if quick { 50_000_000 } else { 500_000_000 });
    }
}

const PARTS: [&str; 4] = ["fairness", "many", "ticker", "nothing"];

/// The share of its CPUs that the process got. The rest went to other processes, or its Ps were
/// idle.
struct Got {
    start: Instant,
    cpu: Duration,
}

impl Got {
    fn start() -> Got {
        Got { start: Instant::now(), cpu: clock(libc::CLOCK_PROCESS_CPUTIME_ID) }
    }

    fn wall(&self) -> Duration {
        self.start.elapsed()
    }

    fn cpu(&self) -> Duration {
        clock(libc::CLOCK_PROCESS_CPUTIME_ID) - self.cpu
    }

    fn so_far(&self) -> String {
        let all = self.wall().as_secs_f64() * runtime::procs() as f64;
        format!("got {:.0} % of its CPUs", 100.0 * self.cpu().as_secs_f64() / all)
    }
}

fn row(part: &str, what: &str, goal: &str, result: &str) {
    println!("{part:<10} {what:<24} {goal:<12} {result}");
}

/// Goroutines that compute without a call until [`Hogs::stop`].
struct Hogs {
    stop: Arc<AtomicBool>,
    counts: Vec<JoinHandle<u64>>,
}

impl Hogs {
    fn start(n: usize) -> Hogs {
        let stop = Arc::new(AtomicBool::new(false));
        let hog = |_| {
            let stop = stop.clone();
            go(move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                }
                count
            })
        };
        let counts = (0..n).map(hog).collect();
        Hogs { stop, counts }
    }

    /// Stops the hogs. Returns how far each has counted.
    fn stop(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.counts.into_iter().map(|hog| hog.join().expect("a hog does not panic")).collect()
    }
}

/// Measures how evenly hogs share the Ps.
fn fairness(time: Duration) {
    for (n, goal) in [(2, "≥ 0.99"), (16, "≥ 0.99"), (64, "≥ 0.98"), (1000, "≥ 0.9")] {
        let time = if n == 1000 { 10 * time } else { time };
        let got = Got::start();
        let hogs = Hogs::start(n);
        time::sleep(time);
        let counts = hogs.stop();
        let least = counts.iter().min().map_or(0.0, |&least| least as f64);
        let mean = counts.iter().sum::<u64>() as f64 / n as f64;
        let result = format!("{:.4}; the last had {:.2} of the mean", jain(&counts), least / mean);
        row(
            "fairness",
            &format!("{n} hogs, {time:?}"),
            goal,
            &format!("{result}; {}", got.so_far()),
        );
    }
}

/// Returns Jain's index: 1 if all counts are equal, 1/n if one hog has everything.
fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    sum * sum / (counts.len() as f64 * squares)
}

/// CPU time that each goroutine of `many` needs.
const EACH: Duration = Duration::from_millis(30);
/// CPU time of one piece of that computation.
const PIECE: Duration = Duration::from_micros(100);

/// Runs many goroutines that each need more CPU time than a slice, all of them runnable from the
/// start.
fn many(n: u64) {
    let procs = runtime::procs();
    let steps = steps_of_a_piece(procs);
    let most = MostThreads::start();
    let (before, got) = (preemptions(), Got::start());
    let task = |seed| go(move || compute(seed, steps, (EACH.as_nanos() / PIECE.as_nanos()) as u32));
    let tasks: Vec<JoinHandle<()>> = (0..n).map(task).collect();
    tasks.into_iter().for_each(|task| task.join().expect("a task does not panic"));
    let (wall, cpu, share) = (got.wall(), got.cpu(), got.so_far());
    let (after, threads) = (preemptions(), most.stop());

    let ideal = (EACH * n as u32).as_secs_f64();
    let ratio = |time: Duration, ideal: f64| time.as_secs_f64() / ideal;
    let what = format!("{n} × {EACH:?} of CPU");
    let result = format!("time / ideal {:.3} ({wall:.1?})", ratio(wall, ideal / procs as f64));
    row("many", &what, "≤ 1.2", &result);
    // More time but not more CPU time: other processes used the machine.
    let result = format!("CPU / ideal {:.3} ({cpu:.1?}); {share}", ratio(cpu, ideal));
    row("", "", "", &result);
    let goal = format!("≤ {}", procs + 32);
    row("", "most threads", &goal, &format!("{threads} (with the one that counts)"));
    let Preemptions { moved, in_place, outside, deferred } = after;
    let result = format!(
        "{} moved, {} in place, {} of these outside, {} deferred",
        moved - before.moved,
        in_place - before.in_place,
        outside - before.outside,
        deferred - before.deferred,
    );
    row("", "preemptions", "", &result);
}

/// Computes `pieces` pieces of `steps` steps of xorshift. There is no call inside a piece, and each
/// step depends on the previous one.
fn compute(seed: u64, steps: u64, pieces: u32) {
    let mut state = seed | 1;
    for _ in 0..pieces {
        for _ in 0..steps {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        black_box(state);
    }
}

/// Returns the number of steps in a piece. Measured while as many threads compute as there are Ps,
/// since CPUs may share a core.
fn steps_of_a_piece(procs: usize) -> u64 {
    const STEPS: u64 = 50_000;
    const PIECES: u32 = 2000;
    let measure = || {
        compute(1, STEPS, PIECES / 10);
        let before = clock(libc::CLOCK_THREAD_CPUTIME_ID);
        compute(1, STEPS, PIECES);
        clock(libc::CLOCK_THREAD_CPUTIME_ID) - before
    };
    let threads: Vec<_> = (0..procs).map(|_| thread::spawn(measure)).collect();
    let times = threads
        .into_iter()
        .map(|thread| thread.join().expect("the measuring thread does not panic"));
    let piece = times.sum::<Duration>() / procs as u32 / PIECES;
    (STEPS as f64 * PIECE.as_secs_f64() / piece.as_secs_f64()) as u64
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An ordinary thread that counts all threads of the process every 5 ms and keeps the maximum.
struct MostThreads {
    stop: Arc<AtomicBool>,
    most: thread::JoinHandle<usize>,
}

impl MostThreads {
    fn start() -> MostThreads {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let most = thread::spawn(move || {
            let mut most = 0;
            while !seen.load(Ordering::Relaxed) {
                most = most.max(threads());
                thread::sleep(Duration::from_millis(5));
            }
            most
        });
        MostThreads { stop, most }
    }

    fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.most.join().expect("the counting thread does not panic")
    }
}

fn threads() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

const TICK: Duration = Duration::from_millis(1);

/// Measures how late a ticker is while `each` hogs per P compute.
fn ticker(each: usize, window: Duration) {
    let hogs = Hogs::start(each * runtime::procs());
    let (watcher, got, start) = (sysmon_cpu(), Got::start(), Instant::now());
    let (mut late, mut next) = (Vec::with_capacity(10_000), 1);
    while start.elapsed() < window {
        let due = start + TICK * next;
        time::sleep(due.saturating_duration_since(Instant::now()));
        late.push(due.elapsed());
        // A ticker that is more than a period late skips the ticks that it has missed.
        let passed = start.elapsed().as_nanos() / TICK.as_nanos();
        next = (next + 1).max(passed as u32 + 1);
    }
    let watcher = (sysmon_cpu() - watcher).as_secs_f64() / start.elapsed().as_secs_f64();
    let share = got.so_far();
    hogs.stop();

    late.sort_unstable();
    let at =
        |part: f64| late[((late.len() - 1) as f64 * part).round() as usize].as_secs_f64() * 1e3;
    let wanted = window.as_nanos() / TICK.as_nanos();
    let missed = (100.0 * (1.0 - late.len() as f64 / wanted as f64)).max(0.0);
    row("ticker", &format!("hogs per P: {each}; p50"), "≤ 0.2 ms", &format!("{:.3} ms", at(0.5)));
    row("", "p99", "≤ 5 ms", &format!("{:.3} ms (most {:.3})", at(0.99), at(1.0)));
    row("", "missed", "≤ 5 %", &format!("{missed:.1} %; {share}"));
    row("", "the watcher's CPU", "≤ 8 %", &format!("{:.1} %", 100.0 * watcher));
}

/// Returns the CPU time that sysmon has used so far.
fn sysmon_cpu() -> Duration {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let mut tasks = tasks.flatten().map(|task| task.path());
    let is_watcher = |comm: String| comm.trim_end() == "gosched-sysmon";
    let watcher = tasks.find(|task| fs::read_to_string(task.join("comm")).is_ok_and(is_watcher));
    // The first number is the time on a CPU, in nanoseconds.
    let spent = watcher.and_then(|task| fs::read_to_string(task.join("schedstat")).ok());
    let spent = spent.as_deref().and_then(|text| text.split_whitespace().next()?.parse().ok());
    Duration::from_nanos(spent.unwrap_or(0))
}

/// Measures what preemption costs a program that is never preempted: runs this program as a child,
/// with preemption and without.
fn nothing(steps: u64) {
    let (mut with, mut without) = ([f64::MAX; 2], [f64::MAX; 2]);
    for _ in 0..5 {
        best(&mut with, child(steps, "asyncpreemptoff=0"));
        best(&mut without, child(steps, "asyncpreemptoff=1"));
    }
    for (what, at) in [("time of a step", 0), ("CPU of a step", 1)] {
        let (with, without) = (with[at], without[at]);
        let result = format!("{:.3} ({with:.4} ns, without {without:.4})", with / without);
        row(if at == 0 { "nothing" } else { "" }, what, "1.00", &result);
    }
}

fn best(best: &mut [f64; 2], times: [f64; 2]) {
    best.iter_mut().zip(times).for_each(|(best, time)| *best = best.min(time));
}

/// The argument that makes this program the child of [`nothing`].
const CHILD: &str = "child";

/// Runs the child. Returns the elapsed time and the CPU time of a step, in nanoseconds.
fn child(steps: u64, debug: &str) -> [f64; 2] {
    let mut command = Command::new(env::current_exe().expect("the path of this program is known"));
    command.args([CHILD, &format!("steps={steps}")]).env("GODEBUG", debug);
    let printed = command.output().expect("this program can start itself as a child").stdout;
    let printed = String::from_utf8_lossy(&printed);
    let mut numbers = printed.split_whitespace().flat_map(str::parse);
    [0; 2].map(|_| numbers.next().expect("the child prints two numbers"))
}

/// Computes while no other goroutine is runnable.
fn loop_alone(steps: u64) {
    let got = Got::start();
    compute(1, steps, 1);
    let (wall, cpu) = (got.wall(), got.cpu());
    let each = |time: Duration| time.as_nanos() as f64 / steps as f64;
    println!("{} {}", each(wall), each(cpu));
}
