//! docs/ENVIRONMENT.md: every environment variable of the runtime, the suites and the scripts.
//!
//! The runtime's variables come from its own table, [`SWITCHES`]; the variables of suites and
//! scripts come from [`SUITE_VARIABLES`].

use gosched_fiber::base::environment::{Audience, SWITCHES};
use std::fmt::Write;

/// A variable that suites or scripts read: its name, its value, and its effect.
type SuiteVariable = (&'static str, &'static str, &'static str);

/// Variables that suites and scripts read.
pub const SUITE_VARIABLES: &[SuiteVariable] = &[
    (
        "GOSCHED_GO",
        "path",
        "The `go` command of Go 1.27, for `observe_formats`. `ci/go` installs Go and prints the \
         path. If the variable is not set, and Go is neither in the cache folder nor in `PATH`, \
         the suite skips its comparisons and prints that it does.",
    ),
    ("GOSCHED_GO_FOLDER", "path", "Where `ci/go` installs Go. Default: in the user's cache."),
    (
        "GOSCHED_REQUIRE_GO",
        "any non-empty text",
        "Makes `observe_formats` fail without Go. The variable `CI` does the same.",
    ),
    (
        "GOSCHED_REQUIRE_NIGHTLY",
        "any",
        "Makes `backend_builds` fail without a nightly toolchain, which the sanitizers need. `CI` \
         does the same.",
    ),
    (
        "GOSCHED_NET_OPS",
        "number",
        "Operations in each race of `net_stress`. The default depends on the race.",
    ),
    ("GOSCHED_SEEDS", "number", "Seeds that `sched_stress` tries. Default: 10."),
    (
        "GOSCHED_STRESS",
        "number",
        "Goroutines per process in `sched_stress` (default: 3000). Any value makes `observe_dump` \
         repeat its tests more often.",
    ),
    (
        "GOSCHED_STRESS_SECONDS",
        "seconds",
        "How long `block_stress` (default: 1) and the tests for false alarms in \
         `observe_leak_hints` run.",
    ),
    (
        "GOSCHED_STRESS_SEED",
        "number",
        "First seed of `block_stress`. Default: the process id. A failing test prints the seed \
         that replays it.",
    ),
    (
        "GOSCHED_PREEMPT_SECONDS",
        "seconds",
        "How long each case of `preempt` and `preempt_hostile` runs. Default: 0.4, or 0.1 in debug \
         builds. `ci/soak` sets it to 10.",
    ),
    ("GOSCHED_TEST*", "", "A suite sets variables with this prefix for its own child processes."),
];

/// What a build can select: features and `--cfg` flags.
const BUILD_FLAGS: &[(&str, &str)] = &[
    ("feature `threads`", "Goroutines are threads, and no function of libc is replaced."),
    ("feature `hyper`", "Adds `gosched::hyper`, which connects hyper 1.x."),
    ("`--cfg gosched_no_port`", "Builds as for a system without a port: goroutines are threads."),
    (
        "`--cfg gosched_no_probes`",
        "Builds without the recording for metrics and dumps; only for `benches/probes.py`.",
    ),
];

/// Returns the text of docs/ENVIRONMENT.md.
pub fn document() -> String {
    let mut out = String::from(
        "# Environment variables\n\n\
         This file is generated from the tables in crates/fiber/src/base/environment.rs and\n\
         tests/src/environment.rs; a test compares them. CONTRIBUTING.md says how to add a variable.\n\n\
         Set the variables before the program starts: the runtime reads most of them only once.\n",
    );
    for (audience, title) in [
        (Audience::Users, "For people who run a program"),
        (
            Audience::Tests,
            "For tests: code paths that the runtime would not choose on this machine",
        ),
        (Audience::Runtime, "Set by the runtime for its own child processes"),
    ] {
        let _ = write!(
            out,
            "\n## {title}\n\n| variable | values | default | effect |\n|---|---|---|---|\n"
        );
        for switch in SWITCHES.iter().filter(|switch| switch.audience == audience) {
            let key = switch.key.map(|key| format!("={key}=…")).unwrap_or_default();
            let (name, values) = (switch.variable, switch.values);
            let (default, effect) = (switch.default, switch.effect);
            let _ = writeln!(out, "| `{name}{key}` | {values} | {default} | {effect} |");
        }
    }
    out += "\nSeveral keys of `GODEBUG` are separated by commas: `GODEBUG=schedtrace=1000,scheddetail=1`.\n";
    out += "\n## Read by suites and scripts\n\n| variable | value | effect |\n|---|---|---|\n";
    for (name, value, effect) in SUITE_VARIABLES {
        let _ = writeln!(out, "| `{name}` | {value} | {effect} |");
    }
    out += "\n## Build flags\n\n| flag | effect |\n|---|---|\n";
    for (flag, effect) in BUILD_FLAGS {
        let _ = writeln!(out, "| {flag} | {effect} |");
    }
    out
}
