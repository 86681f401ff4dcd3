//! Blocking calls, sysmon, idle processes, threads and memory: latency and cost.
//!
//! Each case runs a separate program, which measures threads beside goroutines and prints both
//! numbers.

use crate::judge::{Case, Limit, Measured};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BLOCKING: &str = env!("CARGO_BIN_EXE_blocking_program");
const HOSTILE: &str = env!("CARGO_BIN_EXE_hostile_program");
const SCHED: &str = env!("CARGO_BIN_EXE_sched_program");
const ALLOC: &str = env!("CARGO_BIN_EXE_alloc_program");

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a timer of 5 ms beside a call that blocks the only P",
        unit: "ms",
        limit: Limit::AtMost { factor: 2.0, plus: 20.0 },
        measure: || in_millis(pair(&output_of_blocking(&["lateness"], "1"), "timer")),
    },
    Case {
        name: "a blocking call of 1 ms, alone on 1 P",
        unit: "ms",
        limit: Limit::AtMost { factor: 2.0, plus: 10.0 },
        measure: || in_millis(pair(&output_of_blocking(&["lateness"], "1"), "call")),
    },
    Case {
        name: "longest wait beside 20 goroutines that nap for 50 us, 1 P",
        unit: "ms",
        limit: Limit::AtMost { factor: 6.0, plus: 80.0 },
        measure: || in_millis(pair(&output_of_blocking(&["longest wait"], "1"), "ours")),
    },
    Case {
        name: "longest wait beside 20 goroutines that nap for 50 us, 2 Ps",
        unit: "ms",
        limit: Limit::AtMost { factor: 6.0, plus: 80.0 },
        measure: || in_millis(pair(&output_of_blocking(&["longest wait"], "2"), "ours")),
    },
    Case {
        // Losing a P that is handed off makes this twenty times as late.
        name: "99th percentile of a late 1 ms sleep beside marked calls and I/O, 2 Ps",
        unit: "ms",
        limit: Limit::AtMost { factor: 3.0, plus: 1.0 },
        measure: || in_millis(pair(&output_of(HOSTILE, &["late sleeps", "4000"], "2"), "late")),
    },
    Case {
        name: "looks of sysmon beside goroutines that yield",
        unit: "1/s",
        limit: Limit::AtMost { factor: 0.5, plus: 650.0 },
        measure: || pair(&output_of_blocking(&["watcher", "1500"], "2"), "looks"),
    },
    Case {
        name: "looks of sysmon beside goroutines that yield, at least",
        unit: "1/s",
        limit: Limit::AtLeast { factor: 0.1 },
        measure: || pair(&output_of_blocking(&["watcher", "1500"], "2"), "looks"),
    },
    Case {
        name: "CPU time of a look of sysmon and of a thread that sleeps",
        unit: "ns",
        limit: Limit::AtMost { factor: 3.0, plus: 0.0 },
        measure: || pair(&output_of_blocking(&["watcher", "1500"], "2"), "cost"),
    },
    Case {
        name: "slowest report of 11 deadlocks, and of threads that end",
        unit: "ms",
        limit: Limit::AtMost { factor: 10.0, plus: 1000.0 },
        measure: deadlock,
    },
    Case {
        name: "what happens after 10 s: threads and memory go, a report that hangs ends",
        unit: "s",
        limit: Limit::AtMost { factor: 1.2, plus: 3.0 },
        measure: after_ten_seconds,
    },
];

fn program(path: &str, arguments: &[&str], procs: &str) -> Command {
    let mut command = Command::new(path);
    command.args(arguments).env("GOMAXPROCS", procs).env_remove("GOSCHED_SEED");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Returns the output of `blocking_program`.
fn output_of_blocking(arguments: &[&str], procs: &str) -> String {
    output_of(BLOCKING, arguments, procs)
}

/// Returns the output of a program.
fn output_of(path: &str, arguments: &[&str], procs: &str) -> String {
    let output = program(path, arguments, procs).output().expect("a child process");
    assert!(output.status.success(), "{arguments:?}: {:?}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Parses `WORD NUMBER control NUMBER`. The first number is ours.
fn pair(text: &str, word: &str) -> Measured {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|found| *found == word).expect(word);
    let number = |at: usize| words[at].parse().expect("a number");
    assert_eq!(words[at + 2], "control", "{text}");
    Measured { ours: number(at + 1), control: number(at + 3) }
}

fn in_millis(micros: Measured) -> Measured {
    Measured { ours: micros.ours / 1e3, control: micros.control / 1e3 }
}

fn time_of(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

/// Runs a program that ends with status 2.
fn ends_with_2(name: &str) {
    let output = program(SCHED, &[name], "2").output().expect("a child process");
    assert_eq!(output.status.code(), Some(2), "{name}");
}

/// Programs that end in a deadlock without waiting for the runtime's idle time.
const DEADLOCKS: [&str; 11] = [
    "park",
    "park in run",
    "park locked",
    "join a parked one",
    "join late",
    "join cycle",
    "scope waits",
    "many asleep",
    "main exits",
    "main exits first",
    "main exits locked",
];

/// Runs each of these programs and a program of plain threads alternately. Returns the slowest run
/// of each side.
fn deadlock() -> Measured {
    let (mut ours, mut control) = (Duration::ZERO, Duration::ZERO);
    for name in DEADLOCKS {
        ours = ours.max(time_of(|| ends_with_2(name)));
        control = control.max(time_of(|| ends_with_2("threads end")));
    }
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    Measured { ours: millis(ours), control: millis(control) }
}

/// Measures the slowest of several programs that wait for the runtime's idle time or for the
/// watchdog of a fatal report. The control is a thread that sleeps for the same time. All run at
/// the same time.
fn after_ten_seconds() -> Measured {
    let waits: [fn(); 5] = [
        || {
            let output = program(SCHED, &["surplus"], "2").output().expect("a child process");
            assert!(output.status.success());
        },
        || _ = output_of_blocking(&["thousand", "pipe", "marked", "gone"], "2"),
        || ends_with_2("a thread ends"),
        || ends_with_2("report hangs"),
        free_memory_goes_back,
    ];
    let control = std::thread::spawn(|| time_of(|| std::thread::sleep(Duration::from_secs(10))));
    let ours = waits.map(|wait| std::thread::spawn(move || time_of(wait)));
    let slowest = ours.into_iter().map(|wait| wait.join().expect("a program ends")).max();
    let control = control.join().expect("a thread that sleeps");
    Measured { ours: slowest.expect("some").as_secs_f64(), control: control.as_secs_f64() }
}

fn free_memory_goes_back() {
    let mut child = program(ALLOC, &["idle"], "4").spawn().expect("a child process");
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert!(line.starts_with("idle "), "{line}");
    while resident(&child) >= 20 << 20 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn resident(process: &Child) -> usize {
    let statm =
        std::fs::read_to_string(format!("/proc/{}/statm", process.id())).expect("a process");
    let pages: usize = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("pages");
    pages * 4096
}
