//! Every environment variable that the runtime reads, in one table.
//!
//! docs/ENVIRONMENT.md is generated from [`SWITCHES`]. The house rule
//! `the_environment_document_is_generated` compares the two, and
//! `the_environment_is_read_through_the_table` fails for a variable that is read and not listed.
//!
//! This module never sets a variable and never keeps a value: each read takes the lock of the
//! environment.

use std::ffi::OsString;

/// An environment variable, or one key of the variable `GODEBUG`.
#[derive(Debug)]
pub struct Switch {
    /// Name of the variable.
    pub variable: &'static str,
    /// Key inside the variable, if the variable is `GODEBUG`.
    pub key: Option<&'static str>,
    /// Values that the runtime accepts.
    pub values: &'static str,
    /// What happens if the variable is not set.
    pub default: &'static str,
    /// What the variable changes.
    pub effect: &'static str,
    /// Who sets the variable.
    pub audience: Audience,
}

/// Who sets a [`Switch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// People who run a program.
    Users,
    /// Tests, which select a code path that this machine would not take by itself.
    Tests,
    /// The runtime, for a child process of its own.
    Runtime,
}

impl Switch {
    /// Returns the value of the variable, if it is set. Takes the lock of the environment.
    pub fn read(&self) -> Option<OsString> {
        std::env::var_os(self.variable)
    }

    /// Returns whether the variable is set to `value`.
    pub fn is(&self, value: &str) -> bool {
        self.read().is_some_and(|found| found == value)
    }

    /// Returns the number that `GODEBUG` contains for the key. Returns `None` if this is not a key
    /// of `GODEBUG`, or if `GODEBUG` has no number for it.
    pub fn number(&self) -> Option<i32> {
        find_number(self.read()?.to_str()?, self.key?)
    }
}

/// Returns the last number that `text`, in the format `name=value,...`, contains for `name`. Spaces
/// are part of names and values, as in Go.
fn find_number(text: &str, name: &str) -> Option<i32> {
    let parts = text.rsplit(',').filter_map(|part| part.split_once('='));
    parts.filter(|(found, _)| *found == name).find_map(|(_, value)| value.parse().ok())
}

macro_rules! switches {
    ($($audience:ident $name:ident: $variable:literal $([$key:literal])? $values:literal, $default:literal, $effect:literal;)+) => {
        $(
            #[doc = $effect]
            pub static $name: Switch = Switch {
                variable: $variable,
                key: switches!(@key $($key)?),
                values: $values,
                default: $default,
                effect: $effect,
                audience: Audience::$audience,
            };
        )+

        /// All switches, in the order of docs/ENVIRONMENT.md.
        pub static SWITCHES: &[&Switch] = &[$(&$name),+];
    };
    (@key) => { None };
    (@key $key:literal) => { Some($key) };
}

switches! {
    Users PROCS: "GOMAXPROCS"
        "a number from 1 to 4096",
        "the number of CPUs in the affinity mask, or the container's CPU limit if that is lower (but not below 2)",
        "Maximum number of goroutines that run at the same time (the number of Ps). Greater values mean 4096, invalid values are ignored. If the variable is set, the number does not follow changes of the container's CPU limit.";
    Users STACK: "GOSCHED_STACK"
        "bytes, such as `262144`, `512k` or `1m`",
        "185 KiB in release builds, about 950 KiB with debug assertions",
        "Usable stack size of goroutines, except the main goroutine. `Builder::stack_size` overrides it for one goroutine.";
    Users SLICE: "GOSCHED_SLICE"
        "a duration, such as `500us`, `10ms` or `1s`",
        "`10ms`",
        "CPU time after which a running goroutine is preempted, if another goroutine waits to run. An integer with the unit `us`, `ms` or `s`.";
    Users TRACEBACK: "GOTRACEBACK"
        "`none`, `single`, `all`, `system`, `crash`, or `0`, `1`, `2`",
        "`single`",
        "Which goroutines a report shows. After a panic that ends the program: all with `all` and above, otherwise only the panic message. After a deadlock or another fatal error: none with `none`, otherwise all. `system` adds the runtime's frames, and `crash` also aborts for a core dump. `0`, `1` and `2` mean `none`, `all` and `system`. SIGQUIT, stack overflow and thread exhaustion show all goroutines and all frames regardless of this variable.";
    Users SCHEDTRACE: "GODEBUG" ["schedtrace"]
        "milliseconds",
        "off",
        "Prints a line about the scheduler, in Go's format, to standard error at this interval.";
    Users SCHEDDETAIL: "GODEBUG" ["scheddetail"]
        "`0` or `1`",
        "`0`",
        "Adds a line for each P, M and G to the output of `schedtrace`.";
    Users ASYNC_PREEMPT_OFF: "GODEBUG" ["asyncpreemptoff"]
        "`0` or `1`",
        "`0`",
        "Turns off preemption by signals. Goroutines are then preempted only where they call the runtime.";
    Users LEAK_HINTS: "GODEBUG" ["leakhints"]
        "`0` or `1`",
        "`0`",
        "Appends the goroutines that wait for each other to the report of a fatal error, such as a deadlock, and of SIGQUIT.";
    Users TRACEBACK_LABELS: "GODEBUG" ["tracebacklabels"]
        "`0` or `1`",
        "`1`",
        "Shows the labels of a goroutine in the first line of its stack trace.";
    Users SEED: "GOSCHED_SEED"
        "a number",
        "off: the scheduler follows its usual rules, with random numbers seeded from the clock",
        "Turns the seeded mode on: the scheduler makes its choices at random, from this seed. Panics, fatal errors and failing tests in virtual time print the seed that replays the run.";
    Tests PREEMPT: "GOSCHED_PREEMPT"
        "`in-place` or `moving`",
        "`moving` where the program has the allocation cache and the interrupted code allows it, otherwise `in-place`",
        "Restricts preemption to one way. `in-place`: a goroutine stops together with its thread. `moving`: a goroutine can continue on another thread.";
    Tests POLLER: "GOSCHED_POLLER"
        "`poll`",
        "epoll",
        "Waits for descriptors with poll(2) instead of epoll.";
    Tests FSGSBASE: "GOSCHED_FSGSBASE"
        "`off`",
        "the instruction `wrfsbase`, where the CPU and the kernel allow it",
        "Writes the thread pointer with the system call `arch_prctl`, as on CPUs and kernels without FSGSBASE.";
    Tests GUARD: "GOSCHED_GUARD"
        "`mprotect`",
        "`MADV_GUARD_INSTALL`, where the kernel has it",
        "Makes the guard pages of stacks with `mprotect`, as on kernels before 6.13.";
    Tests PIDFD: "GOSCHED_PIDFD"
        "`off`",
        "`pidfd_open`, where the kernel has it",
        "Waits for child processes as on kernels without pidfd.";
    Tests PROC: "GOSCHED_PROC"
        "`off`",
        "`/proc` is read",
        "Runs as on a system without `/proc`.";
    Runtime VIRTUAL_TIME: "GOSCHED_VIRTUAL_TIME"
        "the module path of a test",
        "real time",
        "Set for the child process that runs a test in virtual time.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        let text = "schedtrace=100,asyncpreemptoff=1,empty=,flag";
        let found = |name| find_number(text, name);
        assert_eq!(found("schedtrace"), Some(100));
        assert_eq!(found("asyncpreemptoff"), Some(1));
        for nothing in ["sched", "trace", "empty", "flag", ""] {
            assert_eq!(found(nothing), None, "{nothing}");
        }
        assert_eq!(find_number("", "x"), None);
    }

    /// Each text was given to a Go program.
    #[test]
    fn the_last_number_counts_and_spaces_are_part_of_names() {
        for (text, wanted) in [
            ("schedtrace=0,schedtrace=20", Some(20)),
            ("schedtrace=20,schedtrace=0", Some(0)),
            ("schedtrace=20,schedtrace=x", Some(20)),
            ("schedtrace=20,schedtrace", Some(20)),
            ("schedtrace=+020", Some(20)),
            ("x=1, schedtrace=20", None),
            ("schedtrace =20", None),
            ("schedtrace=20 ,x=1", None),
            ("schedtrace=4294967316", None),
        ] {
            assert_eq!(find_number(text, "schedtrace"), wanted, "{text:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        for (at, switch) in SWITCHES.iter().enumerate() {
            let same =
                |other: &&&Switch| other.variable == switch.variable && other.key == switch.key;
            assert_eq!(SWITCHES.iter().filter(same).count(), 1, "{at}: {switch:?}");
        }
    }
}
