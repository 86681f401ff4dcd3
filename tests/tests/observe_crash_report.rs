//! A process that crashes writes its whole report and exits with status 2, even if main returns or
//! the process exits in the meantime.

use gosched_tests::dumps;
use gosched_tests::golang::clean_command;
use gosched_tests::wait;
use gosched_tests::watched_child::{ChildOutput, WatchedChild};
use std::path::Path;
use std::process::ExitStatus;

const BYSTANDERS: usize = 200;

/// Starts a program that crashes, and closes its standard input as soon as its report begins.
fn dies(how: &str, way: &str, level: &str) -> (ExitStatus, ChildOutput) {
    wait::retry(|| {
        let (status, said) = dies_once(how, way, level);
        dumps::ensure_complete(&said.err).map(|()| (status, said))
    })
}

fn dies_once(how: &str, way: &str, level: &str) -> (ExitStatus, ChildOutput) {
    let program = Path::new(env!("CARGO_BIN_EXE_observe_program"));
    let mut command = clean_command(program, &["dies", how, way]);
    command.env("GOTRACEBACK", level);
    let mut program = WatchedChild::start(command);
    program.wait_for("ready", |said| said.out.contains("ready\n"));
    if how == "quit" {
        program.signal(libc::SIGQUIT);
    }
    program.wait_for("first words", |said| {
        said.err.contains("fatal error: ") || said.err.contains("SIGQUIT")
    });
    program.close_stdin();
    program.wait_for_exit()
}

fn count_bystanders(text: &str) -> usize {
    text.matches("bystander(").count()
}

#[test]
fn a_main_that_ends_does_not_cut_a_report_short() {
    for way in ["returns", "exits", "is run"] {
        for how in ["overflow", "panic", "threads", "quit"] {
            if (how, way) == ("quit", "is run") {
                continue; // `gosched::run` leaves SIGQUIT to the program.
            }
            let (status, said) = dies(how, way, "all");
            assert_eq!(status.code(), Some(2), "{how}, {way}: {}", said.err);
            assert_eq!(count_bystanders(&said.err), BYSTANDERS, "{how}, {way}: {}", said.err);
        }
    }
}

/// Like Go's `throw`, an exceeded limit shows all goroutines whatever the value of `GOTRACEBACK`.
#[test]
fn an_exceeded_limit_shows_all_goroutines_at_every_gotraceback_level() {
    for how in ["overflow", "threads"] {
        for level in ["none", "single"] {
            let (status, said) = dies(how, "returns", level);
            assert_eq!(status.code(), Some(2), "{how}, {level}: {}", said.err);
            assert_eq!(count_bystanders(&said.err), BYSTANDERS, "{how}, {level}: {}", said.err);
            let headers = said.err.matches("[chan receive]:").count();
            let detailed = said.err.lines().filter(|line| {
                line.starts_with("goroutine ") && line.ends_with(" m=nil [chan receive]:")
            });
            assert_eq!((headers, detailed.count()), (BYSTANDERS, BYSTANDERS), "{}", said.err);
        }
    }
}

/// The report cannot call the allocator, so it has no stacks, but it lists every goroutine.
#[test]
fn a_stack_overflow_in_the_allocator_is_reported_with_all_goroutines() {
    // An alarm ends a process whose report makes no progress. A slow machine can trigger the alarm
    // too, so the test retries.
    wait::retry(|| {
        let (status, said) = dies_once("overflow in malloc", "returns", "all");
        assert_eq!(status.code(), Some(2), "{}", said.err);
        assert!(said.err.contains("fatal error: stack overflow"), "{}", said.err);
        let headers = said.err.lines().filter(|line| line.contains(" [chan receive]:")).count();
        if headers == BYSTANDERS { Ok(()) } else { Err(said.err) }
    });
}
