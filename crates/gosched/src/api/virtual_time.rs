//! Tests in virtual time: each test runs in its own process, whose clock jumps.
//!
//! The process is the same test program, started with arguments that select this one test, with one
//! P and with a seed. So nothing runs beside the test, and the clock and the scheduler of the
//! process serve only the test.
//!
//! The process of the test harness never uses virtual time: only the child calls `begin`.

use crate::block::exit::panic_message;
use crate::sched;
use crate::sys::{clock, random};
use gosched_fiber::base::environment;
use std::any::Any;
use std::panic::catch_unwind;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

/// The beginning of the last line of a test that panicked; the panic message follows.
const PANIC_PREFIX: &str = "gosched: the test panicked: ";

/// Returns whether this process was started to run the test `path`.
pub(crate) fn is_child(path: &str) -> bool {
    environment::VIRTUAL_TIME.is(path)
}

/// Runs a test in its own process, and prints the output of that process. The harness captures that
/// output, and shows it if the test fails.
///
/// # Panics
/// The test panicked or crashed, its goroutines were in a deadlock, or its process could not be
/// started.
#[track_caller]
pub(crate) fn run(path: &str, seed: Option<u64>) -> ExitCode {
    // The harness's names of tests do not contain the name of the crate.
    let name = path.split_once("::").map_or(path, |(_crate, name)| name);
    let seed = random::seed_in_environment().or(seed).unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()))
    });
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(why) => panic!(
            "test `{name}`: cannot start the test program again in virtual time, because its path is not known: {why}"
        ),
    };
    let output = Command::new(program)
        .args([name, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"])
        .env(environment::VIRTUAL_TIME.variable, path)
        .env(environment::PROCS.variable, "1")
        .env(environment::SEED.variable, seed.to_string())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(why) => panic!("test `{name}`: cannot start the child process for virtual time: {why}"),
    };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The process does not run the test if the harness knows it by another name, or if the program
    // has its own harness.
    let ran = out.contains(START_LINE);
    let shown = out.split_once(START_LINE).map_or(&*out, |(_before, shown)| shown.trim_start());
    // The harness captures the output of these macros. They panic if they cannot write.
    let _ = catch_unwind(|| print!("{shown}"));
    let _ = catch_unwind(|| eprint!("{err}"));
    if output.status.success() && ran {
        return ExitCode::SUCCESS;
    }
    if !ran {
        panic!(
            "test `{name}`: the child process did not run the test: `virtual_time` needs the standard test harness"
        );
    }
    let told = out.lines().find_map(|line| line.strip_prefix(PANIC_PREFIX));
    match (told, output.status.code()) {
        (Some(message), _) => {
            panic!("{}\nnote: GOSCHED_SEED={seed} replays this run", unfold(message))
        }
        (None, Some(DEADLOCK_EXIT_CODE)) if err.contains("all goroutines are asleep") => {
            panic!(
                "all goroutines are asleep (listed above)\nnote: GOSCHED_SEED={seed} replays this run"
            )
        }
        (None, Some(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, None) => {
            panic!(
                "test `{name}` crashed: {}\nnote: GOSCHED_SEED={seed} replays this run",
                output.status
            )
        }
    }
}

/// The exit code of a process that ends because of a deadlock, as in Go.
const DEADLOCK_EXIT_CODE: i32 = 2;

/// The line that the test's process prints before it runs the test.
const START_LINE: &str = "gosched: in virtual time";

/// Makes time virtual in this process. Must be called before the runtime starts.
pub(crate) fn begin() {
    println!("\n{START_LINE}");
    clock::make_virtual();
}

/// Ends the test's process with the exit code of the test. If the test panicked, prints the panic
/// message first.
pub(crate) fn end(result: Result<i32, Box<dyn Any + Send>>) -> ! {
    sched::set_deadlock_is_fatal(false);
    let code = result.unwrap_or_else(|payload| {
        let text = panic_message(&*payload).unwrap_or("Box<dyn Any>");
        println!("\n{PANIC_PREFIX}{}", fold(text));
        101
    });
    std::process::exit(code)
}

/// Returns the message as a single line.
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
    fn a_folded_message_is_one_line_and_can_be_unfolded() {
        for text in ["", "plain", "two\nlines\n", "a \\ and \\n\n"] {
            assert_eq!(unfold(&fold(text)), text);
            assert!(!fold(text).contains('\n'));
        }
    }
}
