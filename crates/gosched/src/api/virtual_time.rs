//! Tests in virtual time: each in a process of its own, whose clock jumps.
//!
//! The process is the test program again, told to run that one test, on one P, with a seed. So nothing else
//! runs beside the test, and its clock and its scheduler are the process's.

use crate::block::exit::panic_message;
use crate::sched;
use crate::sys::{clock, random};
use std::any::Any;
use std::panic::catch_unwind;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

/// In the process that runs the test: which one.
const TEST_VARIABLE: &str = "GOSCHED_VIRTUAL_TIME";

/// What the test ended with, as the last line of its process.
const PANIC_PREFIX: &str = "gosched: the test panicked: ";

/// Whether this is the process that runs the test.
pub(crate) fn is_child(path: &str) -> bool {
    std::env::var_os(TEST_VARIABLE).is_some_and(|test| test == path)
}

/// Runs a test in a process of its own. What that prints is printed if it fails.
///
/// # Panics
/// The test did; or all its goroutines waited for each other.
#[track_caller]
pub(crate) fn run(path: &str, seed: Option<u64>) -> ExitCode {
    // The harness knows tests without the name of their crate.
    let name = path.split_once("::").map_or(path, |(_crate, name)| name);
    let seed = random::seed_in_environment().or(seed).unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()))
    });
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(why) => panic!("test `{name}`: no way to start it again in virtual time: {why}"),
    };
    let output = Command::new(program)
        .args([name, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"])
        .env(TEST_VARIABLE, path)
        .env("GOMAXPROCS", "1")
        .env("GOSCHED_SEED", seed.to_string())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(why) => panic!("test `{name}`: it cannot be started again in virtual time: {why}"),
    };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Not run at all: the harness has another name for it, or there is another harness.
    let ran = out.contains(START_LINE);
    let shown = out.split_once(START_LINE).map_or(&*out, |(_before, shown)| shown.trim_start());
    // By macros, which the harness captures; they panic if they cannot write.
    let _ = catch_unwind(|| print!("{shown}"));
    let _ = catch_unwind(|| eprint!("{err}"));
    if output.status.success() && ran {
        return ExitCode::SUCCESS;
    }
    if !ran {
        panic!("test `{name}`: its process did not run it: is there another test harness?");
    }
    let told = out.lines().find_map(|line| line.strip_prefix(PANIC_PREFIX));
    match (told, output.status.code()) {
        (Some(message), _) => {
            panic!("{}\nnote: GOSCHED_SEED={seed} replays this run", unfold(message))
        }
        (None, Some(DEADLOCK_EXIT_CODE)) if err.contains("all goroutines are asleep") => {
            panic!("all goroutines wait, see above\nnote: GOSCHED_SEED={seed} replays this run")
        }
        (None, Some(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, None) => {
            panic!("test `{name}` crashed: {}, with GOSCHED_SEED={seed}", output.status)
        }
    }
}

/// What Go's processes end with, and ours.
const DEADLOCK_EXIT_CODE: i32 = 2;

/// The test's process says that it runs it.
const START_LINE: &str = "gosched: in virtual time";

/// From here on time is virtual. Before the runtime starts.
pub(crate) fn begin() {
    println!("\n{START_LINE}");
    clock::make_virtual();
}

/// The test is over, and so is its process.
pub(crate) fn end(result: Result<i32, Box<dyn Any + Send>>) -> ! {
    sched::set_deadlock_is_fatal(false);
    let code = result.unwrap_or_else(|payload| {
        let text = panic_message(&*payload).unwrap_or("Box<dyn Any>");
        println!("\n{PANIC_PREFIX}{}", fold(text));
        101
    });
    std::process::exit(code)
}

/// A message as one line.
fn fold(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

/// Undoes [`fold`].
fn unfold(line: &str) -> String {
    let mut text = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => text.extend(letters.next().map(|next| if next == 'n' { '\n' } else { next })),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_through_a_line() {
        for text in ["", "plain", "two\nlines\n", "a \\ and \\n\n"] {
            assert_eq!(unfold(&fold(text)), text);
            assert!(!fold(text).contains('\n'));
        }
    }
}
