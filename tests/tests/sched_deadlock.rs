//! If no goroutine can ever run again, the process reports a deadlock in Go's words and exits with
//! status 2; it never does so too early. Each case is a program: see `src/bin/sched_program.rs`.
//! Deadlocks that are found only after the idle time of 10 s are in `sched_idle`. The bench
//! `limits` measures how soon the report comes.

use gosched_tests::children;
use gosched_tests::watched_child::WatchedChild;
use std::process::{Command, Output};

const ASLEEP: &str = "fatal error: all goroutines are asleep - deadlock!";
const NO_GOROUTINES: &str = "fatal error: no goroutines (main called runtime.Goexit) - deadlock!";

fn program(name: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sched_program")).arg(name).output().unwrap()
}

/// Runs a program of `src/bin/deadlock_program.rs`.
fn other_program(name: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deadlock_program"));
    command.arg(name).env_remove("GOSCHED_SEED").output().unwrap()
}

/// Returns the report of a program that ends in a deadlock.
fn deadlock(name: &str, first: &str) -> String {
    assert_deadlock(name, first, &program(name))
}

fn assert_deadlock(name: &str, first: &str, output: &Output) -> String {
    let text = children::stderr(output);
    assert_eq!(output.status.code(), Some(2), "{name}: {:?}: {text}", output.status);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.first(), Some(&first), "{name}: {text}");
    assert_eq!(text.matches("fatal error").count(), 1, "{name}: {text}");
    text
}

fn passes(name: &str) -> String {
    assert_passes(name, &program(name))
}

fn assert_passes(name: &str, output: &Output) -> String {
    let text = children::stderr(output);
    assert!(output.status.success(), "{name}: {:?}: {text}", output.status);
    assert!(!text.contains("fatal error"), "{name}: {text}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn assert_has_line(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "no `{line}` in: {text}");
}

// A.16.6
#[test]
fn a_main_goroutine_that_parks_forever_is_a_deadlock() {
    assert_has_line(&deadlock("park", ASLEEP), "goroutine 1 [park]:");
}

// A.16.6
#[test]
fn a_run_that_never_returns_is_a_deadlock() {
    assert_has_line(&deadlock("park in run", ASLEEP), "goroutine 1 [park]:");
}

// A.16.6
#[test]
fn a_thread_that_joins_a_goroutine_that_never_ends_is_a_deadlock() {
    let text = deadlock("join a parked one", ASLEEP);
    assert!(text.contains(" [park]:"), "{text}");
    let thread = thread_that_waits(&text, "join");
    assert!(thread.contains("tests/src/bin/sched_program.rs:"), "{text}");
}

/// Returns the block of the report that shows where the main thread waits as an ordinary thread.
fn thread_that_waits<'a>(text: &'a str, reason: &str) -> &'a str {
    let header = format!(" [{reason}] {{name: main}}:\n");
    let mut blocks = text.split("\n\n").filter(|block| block.starts_with("thread "));
    let block = blocks.find(|block| block.contains(&header));
    block.unwrap_or_else(|| panic!("no thread in: {text}"))
}

#[test]
fn a_thread_that_waits_forever_is_shown_with_its_stack() {
    let name = "a thread receives";
    let text = assert_deadlock(name, ASLEEP, &other_program(name));
    let thread = thread_that_waits(&text, "chan receive");
    assert!(thread.contains("receives_forever("), "{text}");
    assert!(thread.contains("tests/src/bin/deadlock_program.rs:"), "{text}");
}

// A.16.6
#[test]
fn goroutines_that_join_each_other_are_a_deadlock() {
    let text = deadlock("join cycle", ASLEEP);
    assert_has_line(&text, "goroutine 1 [park]:");
    let headers = text.lines().filter(|line| line.starts_with("goroutine ")).count();
    assert_eq!(headers, 3, "all three are shown: {text}");
}

// A.16.6
#[test]
fn a_scope_that_waits_forever_is_a_deadlock() {
    let text = deadlock("scope waits", ASLEEP);
    assert!(text.contains(" [park]:"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("goroutine 1 [")), "{text}");
}

// A.16.6, S13
#[test]
fn the_report_shows_every_goroutine_with_its_name() {
    let text = deadlock("many asleep", ASLEEP);
    assert_eq!(text.matches("[park] {name: sleeper}:").count(), 3, "{text}");
    let first = text.lines().find(|line| line.starts_with("goroutine ")).unwrap();
    assert!(first.starts_with("goroutine 1 ["), "main is first, as in Go: {text}");
}

// A.16.6
#[test]
fn a_locked_goroutine_that_waits_forever_is_shown_as_locked_to_its_thread() {
    assert_has_line(&deadlock("park locked", ASLEEP), "goroutine 1 [park, locked to thread]:");
}

// A.16.6
#[test]
fn goexit_of_main_with_no_goroutine_left_is_go_s_no_goroutines_deadlock() {
    let output = program("main exits");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "destructor of main\n");
    deadlock("main exits", NO_GOROUTINES);
}

// A.16.6
#[test]
fn goexit_of_main_lets_the_other_goroutines_finish_before_the_deadlock() {
    let output = program("main exits first");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "destructor of main\nthe other went on\n");
    deadlock("main exits first", NO_GOROUTINES);
}

// A.16.6
#[test]
fn an_ordinary_thread_that_can_unpark_is_no_deadlock() {
    assert_eq!(passes("a thread will unpark"), "unparked\n");
}

// A.16.6
#[test]
fn a_goroutine_that_computes_is_no_deadlock() {
    assert_eq!(passes("computes"), "unparked\n");
}

// A.16.6
#[test]
fn a_process_without_goroutines_is_no_deadlock() {
    passes("nothing to do");
    passes("parked, main goes on");
}

#[test]
fn a_thread_that_begins_to_wait_after_all_goroutines_sleep_is_a_deadlock() {
    deadlock("join late", ASLEEP);
}

#[test]
fn goexit_of_main_while_locked_to_its_thread_is_go_s_no_goroutines_deadlock() {
    deadlock("main exits locked", NO_GOROUTINES);
}

/// As in Go, a timer counts as pending only while a goroutine or thread waits on its channel.
#[test]
fn a_timer_without_a_receiver_does_not_hide_a_deadlock() {
    for name in [
        "a ticker nobody hears",
        "a slow ticker nobody hears",
        "a timer nobody hears",
        "a ticker nobody hears any more",
    ] {
        assert_deadlock(name, ASLEEP, &other_program(name));
    }
}

#[test]
fn a_wait_for_a_timer_is_no_deadlock() {
    for name in [
        "ticks are received",
        "a tick is selected",
        "a tick or a limit",
        "a thread receives ticks",
        "async code receives a tick",
        "a function will run",
        "a tick that nobody waited for is there",
    ] {
        assert_eq!(assert_passes(name, &other_program(name)), "over\n", "{name}");
    }
}

/// The report contains the seed, with which the run can be replayed.
#[test]
fn a_failed_run_with_a_seed_prints_the_seed() {
    for (name, code) in [("parks", 2), ("a thread panics", 101)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_deadlock_program"));
        let output = command.arg(name).env("GOSCHED_SEED", "4711").output().unwrap();
        let text = children::stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{name}: {text}");
        assert_has_line(&text, "note: the scheduler's choices come from GOSCHED_SEED=4711");
        let without = children::stderr(&other_program(name));
        assert!(!without.contains("GOSCHED_SEED"), "{name}: {without}");
    }
}

/// Returns a command for a program of `src/bin/deadlock_program.rs` that runs as on a system
/// without `/proc`.
fn command_without_proc(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deadlock_program"));
    command.arg(name).env_remove("GOSCHED_SEED").env("GOSCHED_PROC", "off");
    command
}

fn without_proc(name: &str) -> Output {
    command_without_proc(name).output().unwrap()
}

#[test]
fn a_deadlock_is_found_without_proc() {
    for name in ["parks", "a thread receives", "a ticker nobody hears"] {
        assert_deadlock(name, ASLEEP, &without_proc(name));
    }
}

#[test]
fn a_thread_that_will_unpark_is_no_deadlock_without_proc() {
    let name = "a thread will unpark";
    assert_eq!(assert_passes(name, &without_proc(name)), "over\n");
}

/// The runtime cannot count the threads, so it does not end the process, but warns that the process
/// may be stuck.
#[test]
fn a_program_asleep_for_long_prints_a_warning_if_its_threads_cannot_be_counted() {
    let mut program = WatchedChild::start(command_without_proc("threads cannot be counted"));
    program.wait_for("warning", |said| said.err.ends_with('\n'));
    program.close_stdin();
    let (status, said) = program.wait_for_exit();
    assert!(status.success(), "{status:?}: {}", said.err);
    assert_eq!(said.out, "over\n");
    assert!(
        said.err.starts_with("runtime: all goroutines have been asleep for 10 s: "),
        "{said:?}"
    );
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
}
