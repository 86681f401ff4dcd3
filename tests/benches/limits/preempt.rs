//! Preemption: how late a timer is beside goroutines that never yield, and how evenly such
//! goroutines share the Ps.
//!
//! The goroutines are those of `src/bin/preempt_program`, which runs as a separate process: its Ps,
//! slices and preemption mode come from the environment.

use crate::judge::{Case, Limit, Measured};
use gosched_tests::preempt_runs::{Mode, Program, ProgramOutput};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Median lateness of a sleep of 1 ms.
const MEDIAN: Limit = Limit::AtMost { factor: 4.0, plus: 3.0 };
/// 99th percentile of the lateness of a sleep of 1 ms: at most two slices more.
const WORST: Limit = Limit::AtMost { factor: 4.0, plus: 20.0 };
/// Jain's index, whose ideal is 1.
const FAIR: Limit = Limit::AtLeast { factor: 0.9 };
/// Number of preemptions, relative to the number of slices in the CPU time used.
const LEAST_SLICES: Limit = Limit::AtLeast { factor: 0.25 };
const MOST_SLICES: Limit = Limit::AtMost { factor: 2.0, plus: 2.0 };
/// Share of samples in which more threads want a CPU than there are Ps.
const FEW_MORE: Limit = Limit::AtMost { factor: 2.0, plus: 0.05 };
/// CPU time, relative to the same work on as many OS threads as there are Ps.
const CHEAP: Limit = Limit::AtMost { factor: 1.6, plus: 0.0 };

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "median lateness of a 1 ms ticker, 1 P, 1 hog",
        unit: "ms",
        limit: MEDIAN,
        measure: || ticker(1, 1, Mode::Both, "p50"),
    },
    Case {
        name: "median lateness of a 1 ms ticker, 1 P, 4 hogs",
        unit: "ms",
        limit: MEDIAN,
        measure: || ticker(1, 4, Mode::Both, "p50"),
    },
    Case {
        name: "median lateness of a 1 ms ticker, 2 Ps, 2 hogs",
        unit: "ms",
        limit: MEDIAN,
        measure: || ticker(2, 1, Mode::Both, "p50"),
    },
    Case {
        name: "median lateness of a 1 ms ticker, 2 Ps, 8 hogs",
        unit: "ms",
        limit: MEDIAN,
        measure: || ticker(2, 4, Mode::Both, "p50"),
    },
    Case {
        name: "median lateness of a 1 ms ticker, 2 Ps, 8 hogs, in place",
        unit: "ms",
        limit: MEDIAN,
        measure: || ticker(2, 4, Mode::InPlace, "p50"),
    },
    Case {
        name: "99th percentile of the lateness of a 1 ms ticker, 1 P, 4 hogs",
        unit: "ms",
        limit: WORST,
        measure: || ticker(1, 4, Mode::Both, "p99"),
    },
    Case {
        name: "99th percentile of the lateness of a 1 ms ticker, 2 Ps, in place",
        unit: "ms",
        limit: WORST,
        measure: || ticker(2, 4, Mode::InPlace, "p99"),
    },
    Case {
        name: "worst lateness of a 1 ms ticker, 2 Ps, 1000 hogs",
        unit: "ms",
        limit: Limit::AtMost { factor: 4.0, plus: 1000.0 },
        measure: || lateness(hogs(1000, Mode::Both), "most"),
    },
    Case {
        name: "worst lateness of a 1 ms ticker, 1 P, 60 hogs, in place",
        unit: "ms",
        limit: Limit::AtMost { factor: 4.0, plus: 100.0 },
        measure: || lateness(hogs(60, Mode::InPlace), "most"),
    },
    Case {
        name: "Jain's index of the shares of 2 hogs, 1 P",
        unit: "of 1",
        limit: FAIR,
        measure: || fairness(2, 1, Mode::Both, "10ms"),
    },
    Case {
        name: "Jain's index of the shares of 16 hogs, 2 Ps",
        unit: "of 1",
        limit: FAIR,
        measure: || fairness(16, 2, Mode::Both, "10ms"),
    },
    Case {
        name: "Jain's index of the shares of 16 hogs, 2 Ps, in place",
        unit: "of 1",
        limit: FAIR,
        measure: || fairness(16, 2, Mode::InPlace, "10ms"),
    },
    Case {
        name: "Jain's index of the shares of 64 hogs, 2 Ps, slices of 2 ms",
        unit: "of 1",
        limit: FAIR,
        measure: || fairness(64, 2, Mode::Both, "2ms"),
    },
    Case {
        name: "20 turns of 10 beside one that keeps its slice, 1 P",
        unit: "ms",
        limit: Limit::AtMost { factor: 3.0, plus: 200.0 },
        measure: || turns(1),
    },
    Case {
        name: "20 turns of 10 beside two that keep their slices, 2 Ps",
        unit: "ms",
        limit: Limit::AtMost { factor: 3.0, plus: 200.0 },
        measure: || turns(2),
    },
    Case {
        name: "preemptions with slices of 500 us, at least",
        unit: "times",
        limit: LEAST_SLICES,
        measure: || slices("500us", 500),
    },
    Case {
        name: "preemptions with slices of 500 us, at most",
        unit: "times",
        limit: MOST_SLICES,
        measure: || slices("500us", 500),
    },
    Case {
        name: "preemptions with slices of 5 ms, at least",
        unit: "times",
        limit: LEAST_SLICES,
        measure: || slices("5ms", 5000),
    },
    Case {
        name: "preemptions with slices of 5 ms, at most",
        unit: "times",
        limit: MOST_SLICES,
        measure: || slices("5ms", 5000),
    },
    Case {
        name: "CPUs used by those that come back from calls, 1 P",
        unit: "CPUs",
        limit: Limit::AtMost { factor: 1.3, plus: 0.1 },
        measure: return_from_calls,
    },
    Case {
        name: "share of moments with more threads than Ps, 1 P",
        unit: "of 1",
        limit: FEW_MORE,
        measure: || threads(1, Mode::Both),
    },
    Case {
        name: "share of moments with more threads than Ps, 2 Ps",
        unit: "of 1",
        limit: FEW_MORE,
        measure: || threads(2, Mode::Both),
    },
    Case {
        name: "share of moments with more threads than Ps, 2 Ps, in place",
        unit: "of 1",
        limit: FEW_MORE,
        measure: || threads(2, Mode::InPlace),
    },
    Case {
        name: "CPU time of 3000 goroutines of three slices, 2 Ps, 34 threads",
        unit: "ms",
        limit: CHEAP,
        measure: || many(Mode::Both, "34"),
    },
    Case {
        name: "CPU time of 3000 goroutines of three slices, in place",
        unit: "ms",
        limit: CHEAP,
        measure: || many(Mode::InPlace, "300"),
    },
];

fn program(arguments: &[&str], procs: usize) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_preempt_program"), arguments, procs);
    program.set("GOSCHED_PREEMPT_SECONDS", "1")
}

/// Runs both programs at the same time.
fn both(ours: Program, control: Program) -> (ProgramOutput, ProgramOutput) {
    std::thread::scope(|scope| {
        let control = scope.spawn(|| control.run());
        (ours.run(), control.join().expect("the control runs"))
    })
}

/// Measures how late sleeps of 1 ms end, of a goroutine and of an OS thread in the same process, in
/// milliseconds.
fn lateness(program: Program, what: &str) -> Measured {
    let said = program.run();
    let millis = |word: &str| said.number(word) as f64 / 1e3;
    Measured { ours: millis(what), control: millis(&format!("control_{what}")) }
}

fn ticker(procs: usize, per_p: usize, mode: Mode, what: &str) -> Measured {
    lateness(program(&["ticker", &per_p.to_string()], procs).mode(mode), what)
}

fn hogs(count: usize, mode: Mode) -> Program {
    let procs = if mode == Mode::InPlace { 1 } else { 2 };
    program(&["many hogs", &count.to_string(), "measured"], procs).mode(mode).slice("500us")
}

/// The ideal does not depend on the load of the machine, so it is the control.
fn fairness(count: usize, procs: usize, mode: Mode, slice: &str) -> Measured {
    let said = program(&["fair", &count.to_string()], procs).mode(mode).slice(slice).run();
    Measured { ours: said.number("jain") as f64 / 1e4, control: 1.0 }
}

/// Each turn of the yielding goroutines waits for one slice of each goroutine that keeps its slice.
/// The control is an OS thread that computes for as long.
fn turns(procs: usize) -> Measured {
    const SLICES: u32 = 20;
    const SLICE: Duration = Duration::from_millis(10);
    let control = std::thread::spawn(|| {
        let start = Instant::now();
        while thread_time() < SLICES * SLICE {
            std::hint::spin_loop();
        }
        start.elapsed()
    });
    let ours = program(&["starters"], procs).run().number("micros") as f64 / 1e3;
    let control = control.join().expect("it only computes").as_secs_f64() * 1e3;
    Measured { ours, control }
}

/// Measures how often hogs on one P are preempted. The control is the number of slices in their CPU
/// time, or the number of sleeps of one slice that an OS thread made meanwhile, if that is lower.
fn slices(slice: &str, micros: u64) -> Measured {
    let said = program(&["slice", "500000", &micros.to_string()], 1).slice(slice).run();
    let control = (said.number("used") / micros).min(said.number("pauses"));
    Measured { ours: said.number("preempted") as f64, control: control as f64 }
}

/// Measures the share of a CPU that the goroutines of one P use, and the share of a busy OS thread
/// meanwhile.
fn return_from_calls() -> Measured {
    let busy = Busy::start();
    let said = program(&["back"], 1).run();
    Measured { ours: said.number("share") as f64 / 1e3, control: busy.stop() }
}

fn threads(procs: usize, mode: Mode) -> Measured {
    let (ours, control) =
        both(program(&["threads"], procs).mode(mode), program(&["threads of std"], procs));
    let share = |said: &ProgramOutput| said.number("more") as f64 / said.number("samples") as f64;
    Measured { ours: share(&ours), control: share(&control) }
}

fn many(mode: Mode, most_threads: &str) -> Measured {
    let ours = program(&["many", "3000", "900", most_threads], 2).mode(mode).slice("300us");
    let (ours, control) = both(ours, program(&["many by threads", "3000", "900"], 2));
    let millis = |said: &ProgramOutput| said.number("used") as f64 / 1e3;
    Measured { ours: millis(&ours), control: millis(&control) }
}

/// Returns the CPU time of the calling thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An OS thread that computes until it is stopped.
struct Busy {
    stop: Arc<AtomicBool>,
    share: JoinHandle<f64>,
}

impl Busy {
    fn start() -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let share = std::thread::spawn(move || {
            let start = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            thread_time().as_secs_f64() / start.elapsed().as_secs_f64()
        });
        Busy { stop, share }
    }

    /// Stops the thread. Returns the share of a CPU that it used.
    fn stop(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.share.join().expect("it only computes")
    }
}
