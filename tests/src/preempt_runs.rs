//! Runs programs whose goroutines are preempted, for the suites `preempt`, `preempt_hostile` and
//! `preempt_signals`.

use crate::wait::retry;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// In which ways goroutines may be preempted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Both.
    Both,
    /// Never switched away whole.
    InPlace,
    /// Never stopped with their thread.
    Moving,
}

/// The numbers of Ps that most cases run with.
pub const PROCS: [usize; 3] = [1, 2, 4];

/// Runs a program until what it says is right: which thread runs when is the machine's choice, and a few orders of
/// events are excused. A defect is wrong in every run.
///
/// # Panics
/// A run fails, or none is right within [`LIMIT`](crate::wait::LIMIT).
#[track_caller]
pub fn run_until(program: impl Fn() -> Program, is_right: impl Fn(&ProgramOutput) -> bool) {
    retry(|| {
        let said = program().run();
        println!("{said}");
        if is_right(&said) { Ok(()) } else { Err(said.text) }
    });
}

/// How long `GOSCHED_PREEMPT_SECONDS` lets each case go on, if it is set.
pub fn seconds() -> Option<f64> {
    let seconds = std::env::var("GOSCHED_PREEMPT_SECONDS").ok()?;
    Some(seconds.parse().expect("seconds"))
}

/// How often something is repeated: `quick` times in a debug build, `usual` times in others and where
/// `GOSCHED_PREEMPT_SECONDS` is set.
pub fn repetitions(quick: usize, usual: usize) -> usize {
    let is_quick = cfg!(debug_assertions) && seconds().is_none();
    if is_quick { quick } else { usual }
}

/// A program that is to be run.
#[derive(Debug)]
#[must_use = "it does not run by itself"]
pub struct Program {
    command: Command,
    what: String,
    mode: Mode,
}

/// What a program said.
#[derive(Debug)]
pub struct ProgramOutput {
    /// Its standard output.
    pub text: String,
    /// How long it took.
    pub took: Duration,
    what: String,
    mode: Mode,
}

impl Program {
    /// The binary at `path` with these arguments, on so many Ps.
    pub fn new(path: &str, arguments: &[&str], procs: usize) -> Program {
        let mut command = Command::new(path);
        command.args(arguments).env("GOMAXPROCS", procs.to_string());
        for name in ["GOSCHED_SEED", "GOSCHED_PREEMPT", "GOSCHED_SLICE", "GODEBUG"] {
            command.env_remove(name);
        }
        let what = format!("{arguments:?}, {procs} Ps");
        Program { command, what, mode: Mode::Both }
    }

    /// Preempts in these ways only.
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

    /// With this slice, such as `1ms`.
    pub fn slice(self, slice: &str) -> Program {
        self.set("GOSCHED_SLICE", slice)
    }

    /// With this in its environment.
    pub fn set(mut self, name: &str, value: &str) -> Program {
        self.command.env(name, value);
        self
    }

    /// The command, for what is to be changed in other ways.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs it: what became of it, and how long it took.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn output(&mut self) -> (Output, Duration) {
        let start = Instant::now();
        let output = self.command.output();
        let took = start.elapsed();
        (output.unwrap_or_else(|error| panic!("{}: {error}", self.what)), took)
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// It fails.
    pub fn run(mut self) -> ProgramOutput {
        let (output, took) = self.output();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (end, error) = (last(&text), String::from_utf8_lossy(&output.stderr));
        let (what, status) = (self.what, output.status);
        assert!(status.success(), "{what}: {status:?}\n{end}\n{}", last(&error));
        ProgramOutput { text, took, what, mode: self.mode }
    }
}

/// The end of a long text.
fn last(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

impl ProgramOutput {
    /// The number behind a word, where the word is said for the last time. The end of a longer word is none: `one` is
    /// not said by `none`.
    ///
    /// # Panics
    /// There is none.
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

    /// Whether goroutines were preempted, in the ways that were allowed and in no other.
    pub fn is_preempted(&self) -> bool {
        let (moved, in_place) = (self.number("moved"), self.number("in-place"));
        match self.mode {
            Mode::Both => moved + in_place > 0,
            Mode::InPlace => moved == 0 && in_place > 0,
            Mode::Moving => moved > 0 && in_place == 0,
        }
    }

    /// Fails unless they [were](Self::is_preempted).
    ///
    /// # Panics
    /// They were not.
    pub fn assert_preempted(&self) {
        assert!(self.is_preempted(), "{self}");
    }

    /// Fails unless some were switched away whole, if that was allowed, and some stopped in place if not.
    ///
    /// # Panics
    /// They were not.
    pub fn assert_moved_if_allowed(&self) {
        self.assert_preempted();
        let allowed = self.mode != Mode::InPlace && CAN_MOVE;
        assert!(!allowed || self.number("moved") > 0, "{self}");
    }
}

/// Whether goroutines that are preempted may be moved to another thread. A static program has libc in
/// its own text, and never moves them; neither does a program without the allocation cache.
pub const CAN_MOVE: bool = cfg!(not(any(target_feature = "crt-static", feature = "system-alloc")));

impl std::fmt::Display for ProgramOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, last(&self.text))
    }
}
