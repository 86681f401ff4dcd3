//! A dump does not depend on locks that the program's goroutines hold or wait for.

use gosched_tests::dumps;
use gosched_tests::golang::clean_command;
use gosched_tests::wait;
use gosched_tests::watched_child::{ChildOutput, WatchedChild};
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Number of goroutines that each block a thread.
const MANY: usize = 3_000;
const SOME: usize = 50;
const FEW: usize = 20;
const IN_MALLOC: usize = 8;

fn command(kind: &str, count: usize) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_observe_program"));
    clean_command(program, &["quit", "locks", kind, &count.to_string()])
}

/// Sends SIGQUIT once the goroutines are at their locks.
fn quit(command: Command) -> (ExitStatus, ChildOutput) {
    let mut program = WatchedChild::start(command);
    program.wait_for("ready", |said| said.out.contains("ready\n"));
    program.signal(libc::SIGQUIT);
    program.wait_for_exit()
}

/// Checks that all goroutines are shown and most of them with their frames. Returns an error if the
/// dump was cut short.
fn is_whole((status, said): &(ExitStatus, ChildOutput), count: usize) -> Result<(), String> {
    let text = &said.err;
    assert_eq!(status.code(), Some(2), "{status:?}: {text}");
    assert!(text.starts_with("SIGQUIT: quit\n"), "{text}");
    dumps::ensure_complete(text)?;
    assert_eq!(text.matches("\ngoroutine ").count(), count + 1, "{text}");
    // On a busy machine a running goroutine may be shown without frames.
    let shown = text.matches("at_the_lock(").count();
    assert!(shown > count / 2, "{shown} of {count}: {text}");
    Ok(())
}

#[test]
fn a_dump_shows_thousands_of_goroutines_that_block_in_locks_of_std() {
    for _ in 0..3 {
        is_whole(&quit(command("held", MANY)), MANY).unwrap();
    }
}

/// With one arena, a goroutine preempted inside malloc keeps all others out of malloc. There are
/// few goroutines, so the report does not wait long for its turn, and many attempts, since not
/// every signal finds a goroutine inside malloc.
#[test]
fn all_goroutines_are_shown_while_some_are_preempted_inside_malloc() {
    for _ in 0..10 {
        let mut command = command("malloc", IN_MALLOC);
        command.env("MALLOC_ARENA_MAX", "1");
        is_whole(&quit(command), IN_MALLOC).unwrap();
    }
}

#[test]
fn all_goroutines_are_shown_while_they_change_the_environment() {
    for _ in 0..3 {
        let mut command = command("environment", SOME);
        // If `GOMAXPROCS` is set, the number of Ps is fixed and the thread maker never reads the
        // CPU limit.
        command.env_remove("GOMAXPROCS");
        is_whole(&quit(command), SOME).unwrap();
    }
}

/// Asserts that the report lists all goroutines although a lock that the dump needs is never
/// released.
fn assert_all_listed(command: &dyn Fn() -> Command) {
    wait::retry(|| {
        let (status, said) = quit(command());
        let text = &said.err;
        assert_eq!(status.code(), Some(2), "{status:?}: {text}");
        assert!(text.starts_with("SIGQUIT: quit\n"), "{text}");
        assert!(text.contains("the report is incomplete: it made no progress, probably because a lock that it needs is never released\n"), "{text}");
        let (_, list) = text.split_once("is never released\n").unwrap_or_default();
        let listed = list.matches("\ngoroutine ").count();
        if listed == FEW + 1 { Ok(()) } else { Err(said.err) }
    });
}

#[test]
fn all_goroutines_are_listed_while_one_never_releases_the_loader_lock() {
    assert_all_listed(&|| command("loader", FEW));
}

#[cfg(not(target_feature = "crt-static"))]
#[test]
fn all_goroutines_are_listed_while_one_never_returns_from_malloc() {
    use gosched_tests::shared_library;
    let stuck = shared_library::build("stuck", Path::new(env!("CARGO_TARGET_TMPDIR")), &[]);
    assert_all_listed(&|| {
        let mut command = command("allocator", FEW);
        command.env("LD_PRELOAD", &stuck);
        command
    });
}
