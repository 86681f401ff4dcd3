//! Standard error may be full, closed, or a pipe that no process reads. Text that the runtime
//! cannot write is lost, and the program continues or ends as it does otherwise.

use gosched_tests::children;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Output, Stdio};

/// The standard error of a program.
#[derive(Clone, Copy, Debug)]
enum StandardError {
    /// Every write fails with ENOSPC.
    Full,
    /// std opens /dev/null in its place before `main`.
    Closed,
    /// Every write fails with EPIPE.
    WithoutReader,
}

const BROKEN: [StandardError; 3] =
    [StandardError::Full, StandardError::Closed, StandardError::WithoutReader];

impl StandardError {
    fn give_to(self, command: &mut Command) {
        match self {
            StandardError::Full => {
                command.stderr(File::options().write(true).open("/dev/full").unwrap());
            }
            StandardError::Closed => {
                // SAFETY: `close_it` only makes a system call and may run between fork and exec.
                unsafe { command.pre_exec(close_it) };
            }
            StandardError::WithoutReader => {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                command.stderr(writer);
            }
        }
    }
}

fn close_it() -> std::io::Result<()> {
    // SAFETY: the descriptor belongs to the child, which no longer uses it.
    match unsafe { libc::close(2) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn output(command: &mut Command, stderr: Option<StandardError>) -> Output {
    command.stdin(Stdio::null()).env("RUST_BACKTRACE", "1");
    if let Some(broken) = stderr {
        command.stdout(Stdio::piped());
        broken.give_to(command);
        return command.spawn().unwrap().wait_with_output().unwrap();
    }
    command.output().unwrap()
}

fn program(name: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sched_program"));
    command.arg(name).envs(settings.iter().copied());
    command
}

/// Removes all digits: ids of goroutines differ from run to run.
fn without_numbers(text: Vec<u8>) -> String {
    String::from_utf8(text).unwrap().replace(|c: char| c.is_ascii_digit(), "")
}

/// Runs a program with a working standard error, which must contain `words`, and with broken ones.
/// Status and standard output must be the same each time.
#[track_caller]
fn ends_alike(name: &str, settings: &[(&str, &str)], words: &str) -> (ExitStatus, String) {
    let works = output(&mut program(name, settings), None);
    let text = children::stderr(&works);
    assert!(text.contains(words), "{name}, {settings:?}: {:?}: {text}", works.status);
    let said = without_numbers(works.stdout);
    for stderr in BROKEN {
        let broken = output(&mut program(name, settings), Some(stderr));
        let context = format!("{name}, {settings:?}, {stderr:?}");
        assert_eq!(broken.status, works.status, "{context}");
        assert_eq!(without_numbers(broken.stdout), said, "{context}");
    }
    (works.status, said)
}

#[test]
fn a_panic_of_a_goroutine_is_returned_by_join() {
    let (status, said) = ends_alike("message", &[], "panicked");
    assert!(
        status.success() && said.contains("error the goroutine panicked: boom"),
        "{status:?}: {said}"
    );
    let (status, said) = ends_alike("result that panics when dropped", &[], "a bad destructor");
    assert!(status.success() && said.ends_with("all over\n"), "{status:?}: {said}");
}

#[test]
fn a_panic_of_main_ends_the_process_with_status_101() {
    let (status, _) = ends_alike("panics", &[], "main is over");
    assert_eq!(status.code(), Some(101));
}

#[test]
fn a_panic_under_policy_abort_ends_the_process_with_status_2() {
    for level in ["none", "single", "all"] {
        let (status, said) = ends_alike("abort", &[("GOTRACEBACK", level)], "fatal error: ");
        assert_eq!(status.code(), Some(2));
        assert!(said.contains("destructor"), "{said}");
    }
}

#[test]
fn goexit_of_main_with_no_goroutine_left_ends_the_process_with_status_2() {
    let (status, _) = ends_alike("main exits", &[], "no goroutines (main called runtime.Goexit)");
    assert_eq!(status.code(), Some(2));
}

#[cfg_attr(feature = "threads", ignore = "goroutines are threads: a deadlock is not noticed")]
#[test]
fn a_deadlock_ends_the_process_with_status_2() {
    for settings in [&[("GODEBUG", "leakhints=1")][..], &[]] {
        let (status, _) = ends_alike("park", settings, "all goroutines are asleep - deadlock!");
        assert_eq!(status.code(), Some(2));
    }
}

#[cfg_attr(feature = "threads", ignore = "goroutines are threads: SIGQUIT is the system's")]
#[test]
fn sigquit_ends_the_process_with_status_2() {
    let (status, _) = ends_alike("quits", &[], "SIGQUIT: quit");
    assert_eq!(status.code(), Some(2));
}

#[cfg_attr(feature = "threads", ignore = "goroutines are threads: these limits are the system's")]
#[test]
fn an_exceeded_limit_ends_the_process_with_status_2() {
    for (name, words) in
        [("overflows", "stack overflow"), ("thread limit", "fatal error: thread exhaustion")]
    {
        let (status, _) = ends_alike(name, &[], words);
        assert_eq!(status.code(), Some(2), "{name}");
    }
}

#[test]
fn a_broken_rule_aborts_the_process() {
    let (status, _) = ends_alike("broken rule", &[], "runtime: a rule was broken");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGABRT));
}

#[cfg_attr(feature = "threads", ignore = "goroutines are threads: these settings are not read")]
#[test]
fn an_invalid_setting_is_ignored() {
    for name in ["GOSCHED_SLICE", "GOSCHED_PREEMPT", "GOSCHED_STACK"] {
        let (status, said) = ends_alike("unit", &[(name, "nonsense")], name);
        assert!(status.success() && said == "in main\n", "{name}: {status:?}: {said}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_does_not_stop_the_program() {
    let (status, said) = ends_alike("computes", &[("GODEBUG", "schedtrace=10")], "SCHED ");
    assert!(status.success() && said == "unparked\n", "{status:?}: {said}");
}

#[gosched::test(virtual_time)]
#[ignore = "run by `a_test_in_virtual_time_that_cannot_show_its_output_passes`"]
fn prints_in_virtual_time() {
    writeln!(std::io::stderr(), "printed in virtual time").unwrap();
}

#[test]
fn a_test_in_virtual_time_that_cannot_show_its_output_passes() {
    let test = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["prints_in_virtual_time", "--exact", "--ignored", "--nocapture"]);
        command
    };
    let works = output(&mut test(), None);
    assert!(children::stderr(&works).contains("printed in virtual time"), "{works:?}");
    for stderr in BROKEN {
        let broken = output(&mut test(), Some(stderr));
        assert!(broken.status.success(), "{stderr:?}: {broken:?}");
    }
}
