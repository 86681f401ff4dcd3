//! Dumps, traces and metrics: how long they take, and what they cost.
//!
//! The goroutines are those of `src/bin/observe_program`, which runs as a separate process because
//! a dump shows all goroutines of its process.

use crate::judge::{Case, Limit, Measured, number};
use gosched_tests::golang::clean_command;
use std::path::Path;

/// Twice the amount may take three times as long, plus a margin.
const LINEAR: Limit = Limit::AtMost { factor: 3.0, plus: 10.0 };

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "goroutines in unmarked calls that a dump shows whole, 2 Ps",
        unit: "of 1",
        limit: Limit::AtLeast { factor: 0.95 },
        measure: shown_whole,
    },
    Case {
        name: "unmarked calls that 100 dumps end before their time, 2 Ps",
        unit: "calls",
        limit: Limit::AtMost { factor: 4.0, plus: 20.0 },
        measure: || ended_early("2"),
    },
    Case {
        name: "unmarked calls that 100 dumps end before their time, 4 Ps",
        unit: "calls",
        limit: Limit::AtMost { factor: 4.0, plus: 20.0 },
        measure: || ended_early("4"),
    },
    Case {
        name: "sleeps of 200 us that 400 dumps end before their time",
        unit: "calls",
        limit: Limit::AtMost { factor: 1.0, plus: 8.0 },
        measure: short_sleeps,
    },
    Case {
        name: "goroutines that never yield which a dump shows whole, 2 Ps",
        unit: "of 1",
        limit: Limit::AtLeast { factor: 0.95 },
        measure: spinners,
    },
    Case {
        name: "dump of 20 threads that hear no signal, beside 20 that do",
        unit: "ms",
        limit: Limit::AtMost { factor: 3.0, plus: 20.0 },
        measure: deaf,
    },
    Case {
        name: "hints of 8000 that wait for one lock, beside 4000",
        unit: "ms",
        limit: LINEAR,
        measure: || doubled("crowd", &[], 4000, ("micros", 1e-3)),
    },
    Case {
        name: "text of 20000 goroutines, beside 10000",
        unit: "ms",
        limit: LINEAR,
        measure: || doubled("million", &["text,text"], 10_000, ("in", 1.0)),
    },
];

/// Returns the output of the program with these arguments, on `procs` Ps.
fn printed(arguments: &[&str], procs: &str) -> String {
    let mut command = clean_command(Path::new(env!("CARGO_BIN_EXE_observe_program")), arguments);
    let output = command.env("GOMAXPROCS", procs).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?}: {said}", output.status);
    String::from_utf8(output.stdout).expect("a text")
}

/// Returns the smallest share of goroutines shown with all frames, over ten kinds of calls. The
/// ideal is 1.
fn shown_whole() -> Measured {
    let text = printed(&["blocked", "100"], "2");
    let kinds = text.lines().filter(|line| line.contains(" blocked "));
    let shares = kinds.map(|kind| number(kind, "whole") / number(kind, "blocked"));
    Measured { ours: shares.fold(1.0, f64::min), control: 1.0 }
}

/// The scheduler's own signals end some calls early too: the control is half as many calls, without
/// dumps.
fn ended_early(procs: &str) -> Measured {
    let text = printed(&["blocked", "100"], procs);
    Measured { ours: number(&text, "early"), control: number(&text, "early_alone") }
}

/// The control is the same duration without dumps.
fn short_sleeps() -> Measured {
    let text = printed(&["short sleeps", "400"], "4");
    Measured { ours: number(&text, "early"), control: number(&text, "early_alone") }
}

/// The ideal is that a dump shows all of them with all frames.
fn spinners() -> Measured {
    let text = printed(&["spinners", "50"], "2");
    Measured { ours: number(&text, "seen") / number(&text, "wanted"), control: 1.0 }
}

/// The control is the same dump with threads that do not block signals.
fn deaf() -> Measured {
    std::thread::scope(|scope| {
        let control = scope.spawn(|| printed(&["deaf", "hear"], "2"));
        let ours = printed(&["deaf"], "2");
        let control = control.join().expect("the control runs");
        let millis = |text: &str| number(text, "micros") / 1e3;
        Measured { ours: millis(&ours), control: millis(&control) }
    })
}

/// Runs a program with twice `count`, and with `count` as the control. The result is the number
/// after `word`, multiplied by `unit`.
fn doubled(name: &str, rest: &[&str], count: usize, (word, unit): (&str, f64)) -> Measured {
    let measure = |count: usize| {
        let count = count.to_string();
        let arguments = [&[name, &count], rest].concat();
        number(&printed(&arguments, "2"), word) * unit
    };
    std::thread::scope(|scope| {
        let control = scope.spawn(move || measure(count));
        Measured { ours: measure(2 * count), control: control.join().expect("the control runs") }
    })
}
