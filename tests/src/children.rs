//! Child processes that run this test binary again, with one scenario that may crash.
//!
//! A suite lists its scenarios in a test named `child`, which does nothing unless [`SCENARIO`]
//! names a scenario.

use crate::wait::CHILD_LIMIT;
use std::process::{Command, Output};
use std::time::Duration;

/// The environment variable that names the child's scenario.
pub const SCENARIO: &str = "GOSCHED_TEST_SCENARIO";

/// Returns the scenario that this process must run, or `None` if it is not a child. A child that
/// has not ended after [`CHILD_LIMIT`] exits with an error, so that it cannot hang the suite.
pub fn scenario() -> Option<String> {
    let scenario = std::env::var(SCENARIO).ok()?;
    end_after(CHILD_LIMIT);
    Some(scenario)
}

/// Returns a command that runs `scenario` in a child process. The suite must have a test named
/// `child`.
///
/// # Panics
/// The path of the test binary cannot be determined.
pub fn command(scenario: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(SCENARIO, scenario);
    command
}

/// Runs `scenario` in a child process and waits until the child ends.
///
/// # Panics
/// The child cannot be started.
pub fn run(scenario: &str) -> Output {
    command(scenario).output().expect("a child process")
}

/// Returns the child's standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts a thread that ends the process with status 3 after `limit`.
fn end_after(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("deadline");
        // SAFETY: `_exit` ends the process at once.
        unsafe { libc::_exit(3) }
    });
}
