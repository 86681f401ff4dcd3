//! A runner for programs whose goroutines are preempted, for the suites `preempt`,
//! `preempt_hostile` and `preempt_signals`.

use crate::wait::retry;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The ways in which goroutines may be preempted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Both ways.
    Both,
    /// Only stopped in place, together with the thread.
    InPlace,
    /// Only moved off the thread; another thread may continue the goroutine.
    Moving,
}

/// The numbers of Ps that most cases run with.
pub const PROCS: [usize; 3] = [1, 2, 4];

/// Runs a program until its output is right. The system chooses which thread runs when, and a few
/// orders of events make even a correct runtime's output wrong. A defect makes every output wrong.
///
/// # Panics
/// A run fails, or no output is right within [`LIMIT`](crate::wait::LIMIT).
#[track_caller]
pub fn run_until(program: impl Fn() -> Program, is_right: impl Fn(&ProgramOutput) -> bool) {
    retry(|| {
        let said = program().run();
        println!("{said}");
        if is_right(&said) { Ok(()) } else { Err(said.text) }
    });
}

/// Returns the value of `GOSCHED_PREEMPT_SECONDS`, the duration of each case, if it is set.
pub fn seconds() -> Option<f64> {
    let seconds = std::env::var("GOSCHED_PREEMPT_SECONDS").ok()?;
    Some(seconds.parse().expect("seconds"))
}

/// Returns a number of repetitions: `quick` in a debug build, `usual` otherwise or if
/// `GOSCHED_PREEMPT_SECONDS` is set.
pub fn repetitions(quick: usize, usual: usize) -> usize {
    let is_quick = cfg!(debug_assertions) && seconds().is_none();
    if is_quick { quick } else { usual }
}

/// A program that is about to run.
#[derive(Debug)]
#[must_use = "it does not run by itself"]
pub struct Program {
    command: Command,
    what: String,
    mode: Mode,
}

/// The output of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    /// Standard output.
    pub text: String,
    /// Duration of the run.
    pub took: Duration,
    what: String,
    mode: Mode,
}

impl Program {
    /// Creates a run of the binary at `path` with these arguments on `procs` Ps.
    pub fn new(path: &str, arguments: &[&str], procs: usize) -> Program {
        let mut command = Command::new(path);
        command.args(arguments).env("GOMAXPROCS", procs.to_string());
        for name in ["GOSCHED_SEED", "GOSCHED_PREEMPT", "GOSCHED_SLICE", "GODEBUG"] {
            command.env_remove(name);
        }
        let what = format!("{arguments:?}, {procs} Ps");
        Program { command, what, mode: Mode::Both }
    }

    /// Restricts preemption to this mode.
    pub fn mode(mut self, mode: Mode) -> Program {
        let value = match mode {
            Mode::Both => return self,
            Mode::InPlace => "in-place",
            Mode::Moving => "moving",
        };
        self.mode = mode;
        self.what += &format!(", {value}");
        self.set("GOSCHED_PREEMPT", value)
    }

    /// Sets the time slice, such as `1ms`.
    pub fn slice(self, slice: &str) -> Program {
        self.set("GOSCHED_SLICE", slice)
    }

    /// Sets an environment variable.
    pub fn set(mut self, name: &str, value: &str) -> Program {
        self.command.env(name, value);
        self
    }

    /// Returns the command, for other changes to it.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs the program. Returns its output and the duration of the run.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn output(&mut self) -> (Output, Duration) {
        let start = Instant::now();
        let output = self.command.output();
        let took = start.elapsed();
        (output.unwrap_or_else(|error| panic!("{}: {error}", self.what)), took)
    }

    /// Runs the program and waits until it ends.
    ///
    /// # Panics
    /// The program fails.
    pub fn run(mut self) -> ProgramOutput {
        let (output, took) = self.output();
        self.checked(&output, took)
    }

    /// Runs the program as [`run`](Program::run) does, for a user who may be unable to read the
    /// program or its libraries.
    ///
    /// # Errors
    /// The user cannot execute the program, or the dynamic loader cannot read a library.
    ///
    /// # Panics
    /// The program fails.
    pub fn run_if_allowed(mut self) -> std::io::Result<ProgramOutput> {
        let start = Instant::now();
        let output = self.command.output()?;
        if output.status.code() == Some(crate::refuse::NOT_LOADED) {
            return Err(std::io::Error::other(last(&String::from_utf8_lossy(&output.stderr))));
        }
        Ok(self.checked(&output, start.elapsed()))
    }

    fn checked(self, output: &Output, took: Duration) -> ProgramOutput {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (end, error) = (last(&text), String::from_utf8_lossy(&output.stderr));
        let (what, status) = (self.what, output.status);
        assert!(status.success(), "{what}: {status:?}\n{end}\n{}", last(&error));
        ProgramOutput { text, took, what, mode: self.mode }
    }
}

/// Returns the last 20 lines of a text.
fn last(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

impl ProgramOutput {
    /// Returns the number after the last occurrence of `word`. Only whole words count: `none` is no
    /// occurrence of `one`.
    ///
    /// # Panics
    /// The word does not occur, or no number follows it.
    pub fn number(&self, word: &str) -> u64 {
        let mut words = self.text.split_whitespace();
        let mut said = None;
        while let Some(next) = words.next() {
            if next == word {
                said = words.clone().next();
            }
        }
        let said = said.unwrap_or_else(|| panic!("{self}: no `{word}`"));
        let digits: String = said.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{self}: no number after `{word}`"))
    }

    /// Returns whether goroutines were preempted, and only in the ways that the mode allows.
    pub fn is_preempted(&self) -> bool {
        let (moved, in_place) = (self.number("moved"), self.number("in-place"));
        match self.mode {
            Mode::Both => moved + in_place > 0,
            Mode::InPlace => moved == 0 && in_place > 0,
            Mode::Moving => moved > 0 && in_place == 0,
        }
    }

    /// Checks that goroutines [were preempted](Self::is_preempted).
    ///
    /// # Panics
    /// They were not.
    pub fn assert_preempted(&self) {
        assert!(self.is_preempted(), "{self}");
    }

    /// Checks that goroutines were moved if the mode and the build allow that, and that they were
    /// preempted otherwise.
    ///
    /// # Panics
    /// They were not.
    pub fn assert_moved_if_allowed(&self) {
        self.assert_preempted();
        let allowed = self.mode != Mode::InPlace && CAN_MOVE;
        assert!(!allowed || self.number("moved") > 0, "{self}");
    }
}

/// Whether preempted goroutines may move to another thread. They never do in a static program,
/// whose text contains libc, nor in a program without the allocation cache.
pub const CAN_MOVE: bool = cfg!(not(any(target_feature = "crt-static", feature = "system-alloc")));

impl std::fmt::Display for ProgramOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, last(&self.text))
    }
}
