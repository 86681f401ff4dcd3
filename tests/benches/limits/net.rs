//! Sockets under load: how late they are served, and what waiting costs. Also the accuracy of the
//! metric for lock waits.
//!
//! The sockets are those of `net_program`, which runs as a separate process. The two sides of an
//! echo case run one after the other: run at the same time, each would be load for the other.

use crate::judge::{Case, Limit, Measured, number};
use gosched::run;
use gosched::runtime::{self, Value};
use gosched_tests::lock_contention::contend_for_locks;
use std::process::{Command, Stdio};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "median of an echo beside loops that never yield, 1 P",
        unit: "us",
        limit: Limit::AtMost { factor: 3.0, plus: 500.0 },
        measure: || echo("loops", 1),
    },
    Case {
        name: "median of an echo beside loops that never yield, all Ps",
        unit: "us",
        limit: Limit::AtMost { factor: 3.0, plus: 500.0 },
        measure: || echo("loops", all()),
    },
    Case {
        name: "median of an echo to a goroutine beside loops that never yield, 1 P",
        unit: "us",
        limit: Limit::AtMost { factor: 6.0, plus: 1000.0 },
        measure: || echo("loops, client inside", 1),
    },
    Case {
        name: "median of an echo to a goroutine beside loops that never yield, all Ps",
        unit: "us",
        limit: Limit::AtMost { factor: 6.0, plus: 1000.0 },
        measure: || echo("loops, client inside", all()),
    },
    Case {
        name: "median of an echo beside goroutines that always yield, 1 P",
        unit: "us",
        limit: Limit::AtMost { factor: 3.0, plus: 500.0 },
        measure: || echo("yields", 1),
    },
    Case {
        // Goroutines that make each other ready share a slice of 10 ms.
        name: "median of an echo beside channels that are never empty, 1 P",
        unit: "us",
        limit: Limit::AtMost { factor: 3.0, plus: 15_000.0 },
        measure: || echo("channels", 1),
    },
    Case {
        name: "median of an echo beside sockets that are never idle, 1 P",
        unit: "us",
        limit: Limit::AtMost { factor: 3.0, plus: 500.0 },
        measure: || echo("sockets", 1),
    },
    Case {
        name: "50 sleeps of 1 ms beside sockets that are never idle, 1 P",
        unit: "us",
        limit: Limit::AtMost { factor: 6.0, plus: 100_000.0 },
        measure: || {
            let said = program("sockets, and a timer", 1);
            Measured { ours: number(&said, "sleeps"), control: number(&said, "of-a-thread") }
        },
    },
    Case {
        // The control is the number of rounds of each pair of sockets.
        name: "yields of a goroutine beside sockets that are never idle, 1 P",
        unit: "times",
        limit: Limit::AtLeast { factor: 0.05 },
        measure: || {
            let said = program("sockets, and a timer", 1);
            Measured { ours: number(&said, "yields"), control: number(&said, "rounds") }
        },
    },
    Case {
        name: "CPU time of a listener without descriptors, 300 ms",
        unit: "us",
        limit: Limit::AtMost { factor: 2.0, plus: 30_000.0 },
        measure: || {
            let said = program("no descriptors", all());
            Measured { ours: number(&said, "used"), control: number(&said, "of-a-thread") }
        },
    },
    Case {
        name: "CPU time of two datagrams that wait for room, 300 ms",
        unit: "us",
        limit: Limit::AtMost { factor: 2.0, plus: 40_000.0 },
        measure: || {
            let said = program("no room", all());
            Measured { ours: number(&said, "used"), control: number(&said, "of-a-thread") }
        },
    },
    Case {
        // The control is the median wait, as the waiting goroutines measure it, times the number of
        // waits. A busy machine makes a few waits very long, and the metric is a sample that
        // contains none of these.
        name: "waits for locks by the metric, not too many",
        unit: "ms",
        limit: Limit::AtMost { factor: 3.0, plus: 0.0 },
        measure: waits_for_locks,
    },
    Case {
        name: "waits for locks by the metric, not too few",
        unit: "ms",
        limit: Limit::AtLeast { factor: 0.2 },
        measure: waits_for_locks,
    },
];

fn all() -> usize {
    runtime::num_cpu()
}

/// Measures the median of an echo in this mode, and of threads that poll their sockets in a loop.
fn echo(mode: &str, procs: usize) -> Measured {
    let ours = number(&program(mode, procs), "p50");
    Measured { ours, control: number(&program("threads that ask", procs), "p50") }
}

/// Returns the output of the program in this mode, on `procs` Ps.
fn program(mode: &str, procs: usize) -> String {
    const REQUESTS: &str = "200";
    let mut command = Command::new(env!("CARGO_BIN_EXE_net_program"));
    command.args([mode, REQUESTS]).env("GOMAXPROCS", procs.to_string()).stdin(Stdio::null());
    let output = command.output().expect("the program");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mode}, {procs} Ps: {:?}: {text}{error}", output.status);
    text
}

/// Two goroutines on one P wait for each other's locks. Returns the total wait by the metric, and
/// by the goroutines' own clocks.
fn waits_for_locks() -> Measured {
    const STEPS: usize = 40_000;
    let told = || match runtime::metrics().get("/sync/mutex/wait/total:seconds") {
        Some(Value::Float64(seconds)) => *seconds,
        other => panic!("{other:?}"),
    };
    let procs = runtime::set_procs(1);
    let before = told();
    let waits = run(|| contend_for_locks(2, STEPS));
    let ours = told() - before;
    runtime::set_procs(procs);
    let control = waits[waits.len() / 2].as_secs_f64() * waits.len() as f64;
    Measured { ours: ours * 1e3, control: control * 1e3 }
}
