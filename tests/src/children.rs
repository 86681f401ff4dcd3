//! Child processes: this test binary again, running one scenario that may crash.
//!
//! A suite lists its scenarios in one test, `child`, that does nothing unless [`SCENARIO`] names one.

use crate::wait::CHILD_LIMIT;
use std::process::{Command, Output};
use std::time::Duration;

/// The variable that names the scenario a child is to run.
pub const SCENARIO: &str = "GOSCHED_TEST_SCENARIO";

/// The scenario this process is to run, if it is a child. A child that hangs is ended after
/// [`CHILD_LIMIT`]: it fails, and does not hang the suite.
pub fn scenario() -> Option<String> {
    let scenario = std::env::var(SCENARIO).ok()?;
    end_after(CHILD_LIMIT);
    Some(scenario)
}

/// A command that runs `scenario` in a child; its suite has a test named `child`.
///
/// # Panics
/// The test binary cannot be found.
pub fn command(scenario: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(SCENARIO, scenario);
    command
}

/// Runs it to its end.
///
/// # Panics
/// It cannot be started.
pub fn run(scenario: &str) -> Output {
    command(scenario).output().expect("a child process")
}

/// Standard error of a child.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A thread that lives for the rest of the process, and ends it with status 3 after `limit`.
fn end_after(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("deadline");
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(3) }
    });
}
