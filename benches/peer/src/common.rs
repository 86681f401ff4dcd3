//! The contract between the suite and a peer: the command line, the lines of JSON, and work that
//! takes equally long in every peer.
//!
//! The numbers here, and the arithmetic of [`work`], are the same in every peer and every language.
//! Changing them only in this file makes the comparison worthless.

use std::fmt::{self, Write as _};
use std::hint::black_box;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::process::exit;
use std::time::{Duration, Instant};

/// Number of steps of [`work`] in a task of `steal`.
pub(crate) const STEAL_STEPS: u32 = 5000;
/// Number of steps of [`work`] in a leaf of `fib`.
pub(crate) const LEAF_STEPS: u32 = 100;
/// The largest argument for which `fib` starts no task.
pub(crate) const FIB_LEAF: u64 = 10;
/// How long a workload waits before it measures memory, so that its threads can go to sleep.
pub(crate) const SETTLE: Duration = Duration::from_millis(50);

const CHECK_FAILED: i32 = 4;
const NO_SUCH_WORKLOAD: i32 = 3;
const WRONG_USAGE: i32 = 64; // EX_USAGE of sysexits.h

/// A workload. Both functions take `n`: the value of `--n`, or the default.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) default_n: u64,
    /// Returns the correct result, computed without tasks.
    pub(crate) expected: fn(u64) -> u64,
    pub(crate) run: fn(u64) -> Measured,
}

/// The parsed command line.
pub(crate) struct Asked {
    pub(crate) procs: usize,
    workload: Workload,
    n: u64,
    reps: u64,
}

impl Asked {
    /// Parses the command line. Exits if the command is `list`, or if the command line is invalid.
    pub(crate) fn from_command_line(workloads: &[Workload]) -> Asked {
        let mut words = std::env::args().skip(1);
        let name = words.next().unwrap_or_default();
        if name == "list" {
            workloads.iter().for_each(|workload| println!("{}", workload.name));
            exit(0);
        }
        let Some(&workload) = workloads.iter().find(|workload| workload.name == name) else {
            eprintln!("`{name}` is not a workload of this peer: `list` prints its workloads");
            exit(NO_SUCH_WORKLOAD);
        };
        let mut asked = Asked { workload, procs: 1, n: workload.default_n, reps: 1 };
        while let Some(flag) = words.next() {
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            match (flag.as_str(), number) {
                ("--procs", Some(procs @ 1..)) => asked.procs = procs as usize,
                ("--n", Some(n @ 1..)) => asked.n = n,
                ("--reps", Some(reps)) => asked.reps = reps,
                _ => {
                    eprintln!("usage: peer-gosched list | WORKLOAD [--procs N] [--n N] [--reps R]");
                    exit(WRONG_USAGE);
                }
            }
        }
        asked
    }

    /// Runs the workload as often as requested, each time through `run`, which runs it as a
    /// goroutine. Prints a line for each repetition.
    pub(crate) fn drive(&self, run: impl Fn(fn(u64) -> Measured, u64) -> Measured) {
        // Computed before the clocks start: it may be as much work as the workload itself.
        let expected = (self.workload.expected)(self.n);
        for _ in 0..self.reps {
            let before = cpu_time();
            let measured = run(self.workload.run, self.n);
            let cpu = cpu_time() - before;
            if measured.result != expected {
                let (name, result) = (self.workload.name, measured.result);
                eprintln!("{name}: wrong result: {result} instead of {expected}");
                exit(CHECK_FAILED);
            }
            print(self.workload.name, self.n, measured, cpu);
        }
    }
}

/// Prints the line of one repetition. `cpu` is the CPU time of the whole repetition.
pub(crate) fn print(name: &str, n: u64, mut measured: Measured, cpu: Duration) {
    let ops = measured.ops.max(1) as f64;
    let per_op = |time: Duration| time.as_nanos() as f64 / ops;
    let whole = measured.ops;
    measured.say("ops", Said::Count(whole));
    measured.say("cpu_ns_per_op", Said::Ratio(per_op(cpu)));
    measured.say("rss_peak_kb", Said::Count(kib_of("VmHWM:")));
    let mut line = String::new();
    let procs = gosched::runtime::procs();
    let (total, each) = (measured.wall.as_nanos(), per_op(measured.wall));
    let _ = write!(line, r#"{{"peer":"gosched","workload":"{name}","procs":{procs},"n":{n},"#);
    let _ = write!(line, r#""ns_total":{total},"ns_per_op":{each:.3},"extra":{{"#);
    for (index, (key, said)) in measured.extra.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(line, r#"{comma}"{key}":{said}"#);
    }
    line.push_str("}}\n");
    let mut out = std::io::stdout().lock();
    if let Err(why) = out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
        eprintln!("cannot print the result: {why}");
        exit(1);
    }
}

/// The result of one repetition of a workload.
pub(crate) struct Measured {
    result: u64,
    ops: u64,
    wall: Duration,
    extra: Vec<(&'static str, Said)>,
}

/// A value in `extra`.
enum Said {
    Count(u64),
    Ratio(f64),
    Flag(bool),
    Words(&'static str),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Count(count) => write!(f, "{count}"),
            Said::Ratio(ratio) => write!(f, "{ratio:.3}"),
            Said::Flag(flag) => write!(f, "{flag}"),
            Said::Words(words) => write!(f, "\"{words}\""),
        }
    }
}

impl Measured {
    /// Creates a result from the value of [`timed`], for `ops` operations.
    pub(crate) fn new(ops: u64, (result, wall): (u64, Duration)) -> Measured {
        Measured { result, ops, wall, extra: Vec::new() }
    }

    /// Adds a text that names the part of the library that was used. The text must not need escapes
    /// in JSON.
    pub(crate) fn with(mut self, key: &'static str, words: &'static str) -> Measured {
        self.say(key, Said::Words(words));
        self
    }

    /// Adds a number.
    pub(crate) fn and(mut self, key: &'static str, ratio: f64) -> Measured {
        self.say(key, Said::Ratio(ratio));
        self
    }

    /// Adds the median, the 99th percentile and the maximum of `delays`, in microseconds, under
    /// these names.
    pub(crate) fn delays(self, names: [&'static str; 3], mut delays: Vec<Duration>) -> Measured {
        delays.sort_unstable();
        let last = delays.len().saturating_sub(1) as f64;
        names.into_iter().zip([0.5, 0.99, 1.0]).fold(self, |measured, (name, part)| {
            let delay = delays.get((last * part).round() as usize).copied().unwrap_or_default();
            measured.and(name, delay.as_nanos() as f64 / 1e3)
        })
    }

    /// Adds a flag.
    pub(crate) fn is(mut self, key: &'static str, flag: bool) -> Measured {
        self.say(key, Said::Flag(flag));
        self
    }

    fn say(&mut self, key: &'static str, said: Said) {
        self.extra.push((key, said));
    }
}

/// Returns the result of `f` and the time it took.
pub(crate) fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = f();
    (result, start.elapsed())
}

/// Runs `steps` steps of xorshift (13, 7, 17), starting from `seed` made odd. Each step depends on
/// the previous step.
#[inline(never)]
pub(crate) fn work(seed: u64, steps: u32) -> u64 {
    (0..steps).fold(seed | 1, |mut state, _| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^ state << 17
    })
}

/// Returns the sum of the results of all tasks of `steal`.
pub(crate) fn steal_sum(n: u64) -> u64 {
    (0..n).map(|seed| work(seed, STEAL_STEPS)).fold(0, u64::wrapping_add)
}

/// Returns 0 + 1 + … + (n - 1).
pub(crate) fn sum_below(n: u64) -> u64 {
    n * (n - 1) / 2
}

/// Computes a leaf of `fib`: work that no compiler removes, then the number.
#[inline(never)]
pub(crate) fn fib_leaf(n: u64) -> u64 {
    black_box(work(n, LEAF_STEPS));
    fib_number(n)
}

/// Returns the `n`th Fibonacci number.
pub(crate) fn fib_number(n: u64) -> u64 {
    (0..n).fold((0, 1), |(this, next), _| (next, this + next)).0
}

/// Returns the number of tasks that `fib` starts.
pub(crate) fn fib_tasks(n: u64) -> u64 {
    if n <= FIB_LEAF { 0 } else { 1 + fib_tasks(n - 1) + fib_tasks(n - 2) }
}

/// Returns the resident memory of the process, in bytes.
pub(crate) fn resident() -> u64 {
    kib_of("VmRSS:") * 1024
}

/// Returns the peak of the resident memory, in bytes.
pub(crate) fn peak() -> u64 {
    kib_of("VmHWM:") * 1024
}

/// Returns the number of threads of the process.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Returns the value of a line of `/proc/self/status` that is in kB. Returns 0 if there is no such
/// line.
fn kib_of(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

/// Returns the user and system time of the process so far.
pub(crate) fn cpu_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for writes.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a valid `rusage`, so the value is valid even if the call failed.
    let usage = unsafe { usage.assume_init() };
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}
