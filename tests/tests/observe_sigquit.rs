//! Under `#[gosched::main]`, SIGQUIT dumps all goroutines and ends the program with status 2.
//! Without the attribute, and if the program handles, ignores or subscribes to SIGQUIT, the signal
//! is left to the program.

use gosched_tests::dumps;
use gosched_tests::golang::clean_command;
use gosched_tests::wait;
use gosched_tests::watched_child::{ChildOutput, WatchedChild};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

fn command(name: &str) -> Command {
    clean_command(Path::new(env!("CARGO_BIN_EXE_observe_program")), &["quit", name])
}

fn start(name: &str) -> WatchedChild {
    until_ready(WatchedChild::start(command(name)))
}

fn until_ready(mut program: WatchedChild) -> WatchedChild {
    program.wait_for("ready", |said| said.out.contains("ready\n"));
    program
}

/// Makes the command start with the signals ignored that a shell ignores for `command &` in a
/// script.
fn in_the_background(mut command: Command) -> Command {
    let ignore = || {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: `SIG_IGN` is a valid disposition of both signals.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    // SAFETY: the closure calls only async-signal-safe functions.
    unsafe { command.pre_exec(ignore) };
    command
}

/// Sends SIGQUIT `times` times to a program that is ready.
fn quit_by(name: &str, times: usize) -> (ExitStatus, ChildOutput) {
    wait::retry(|| {
        let program = start(name);
        (0..times).for_each(|_| program.signal(libc::SIGQUIT));
        let (status, said) = program.wait_for_exit();
        dumps::ensure_complete(&said.err).map(|()| (status, said))
    })
}

fn quit(name: &str) -> (ExitStatus, ChildOutput) {
    quit_by(name, 1)
}

/// Returns the goroutines of the report.
fn shown(status: ExitStatus, said: &ChildOutput) -> Vec<dumps::DumpedGoroutine> {
    let text = &said.err;
    assert_eq!(status.code(), Some(2), "{status:?}: {text}");
    assert!(text.starts_with("SIGQUIT: quit\n"), "{text}");
    assert_eq!(text.matches("SIGQUIT: quit").count(), 1, "{text}");
    let dump = text.find("\ngoroutine ").unwrap_or_else(|| panic!("no goroutines: {text}"));
    let (dump, _) = text[dump + 1..].split_once("\n\nrax ").unwrap_or_else(|| panic!("{text}"));
    dumps::parse(&format!("{dump}\n")).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// Returns the text that follows `name`, up to the next space.
fn value<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(name).unwrap_or_else(|| panic!("no {name}: {line}"));
    rest.split(' ').next().unwrap_or_default()
}

#[test]
fn sigquit_shows_the_m_that_received_it_and_its_registers() {
    let (status, said) = wait::retry(|| {
        let (status, said) = WatchedChild::start(command("to itself")).wait_for_exit();
        dumps::ensure_complete(&said.err).map(|()| (status, said))
    });
    let text = &said.err;
    shown(status, &said);
    let line = text.lines().nth(1).unwrap();
    assert_ne!(value(line, " m="), "0", "that one is main's: {text}");
    let raises = text.split("\n\n").find(|block| block.contains("raises_quit("));
    let header = raises.and_then(|block| block.lines().next());
    let header = header.unwrap_or_else(|| panic!("{text}"));
    assert!(header.ends_with(" [syscall, locked to thread]:"), "{text}");
    assert_eq!(value(header, " m="), value(line, " m="), "{text}");
    // -6 is `SI_TKILL`: a thread sent the signal.
    assert_eq!(value(line, " sigcode="), "-6", "{text}");
    let (_, registers) = text.split_once("\n\nrax ").unwrap();
    assert_eq!(value(line, "PC="), value(registers, "\nrip    ").lines().next().unwrap());
    // The stack pointer was in a frame of that goroutine when the signal arrived.
    let number = |text: &str| usize::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let sp = number(value(registers, "\nrsp    ").lines().next().unwrap());
    let (_, frame) = raises.unwrap().split_once("raises_quit(").unwrap();
    let frame = frame.lines().nth(1).unwrap();
    let end = number(value(frame, " fp="));
    assert!((end - 4096..end).contains(&sp), "{sp:#x}: {text}");
}

#[test]
fn sigquit_shows_all_goroutines_and_ends_the_program() {
    for name in ["waits", "no longer notified"] {
        wait::retry(|| {
            let (status, said) = quit(name);
            let blocks = shown(status, &said);
            assert_eq!(blocks.len(), 2, "{}", said.err);
            let bystander = blocks.iter().find(|block| block.frame("bystander").is_some());
            let state = bystander.map(|block| block.state.as_str());
            assert_eq!(state, Some("chan receive"), "{name}: {}", said.err);
            // Main may have run for a moment after it printed `ready`.
            let main = blocks.iter().find(|block| block.id == 1).unwrap();
            if main.frame("wait_forever").is_some() { Ok(()) } else { Err(said.err) }
        });
    }
}

#[test]
fn sigquit_shows_goroutines_that_never_yield() {
    wait::retry(|| {
        let (status, said) = quit("busy");
        let blocks = shown(status, &said);
        assert_eq!(blocks.len(), 5, "{}", said.err);
        for block in &blocks {
            let known = matches!(block.state.as_str(), "running" | "runnable" | "preempted");
            assert!(known, "{block:?}");
        }
        let are_shown = blocks.iter().all(|block| block.frame("spins").is_some());
        if are_shown { Ok(()) } else { Err(said.err) }
    });
}

#[test]
fn a_second_sigquit_does_not_disturb_the_report_of_the_first() {
    let (status, said) = quit_by("busy", 2);
    shown(status, &said);
}

fn assert_succeeded(status: ExitStatus, said: &ChildOutput, out: &str) {
    assert!(status.success(), "{status:?}: {}", said.err);
    assert_eq!(said.out, format!("ready\n{out}\n"));
    assert_eq!(said.err, "");
}

#[test]
fn a_handler_installed_before_the_runtime_is_kept() {
    let (status, said) = quit("handled");
    assert_succeeded(status, &said, "handled by the program");
}

#[test]
fn a_program_that_ignores_sigquit_continues() {
    let mut program = start("ignored");
    program.signal(libc::SIGQUIT);
    program.close_stdin();
    let (status, said) = program.wait_for_exit();
    assert_succeeded(status, &said, "ignored");
}

#[test]
fn a_program_started_in_the_background_by_a_script_answers_sigquit() {
    let (status, said) = wait::retry(|| {
        let program = until_ready(WatchedChild::start(in_the_background(command("waits"))));
        // SIGINT stays ignored, as in Go.
        program.signal(libc::SIGINT);
        program.signal(libc::SIGQUIT);
        let (status, said) = program.wait_for_exit();
        dumps::ensure_complete(&said.err).map(|()| (status, said))
    });
    assert_eq!(shown(status, &said).len(), 2, "{}", said.err);
}

#[test]
fn a_program_in_the_background_that_ignores_sigquit_itself_continues() {
    // The program ignores the signal after the runtime has installed its handler, as with Go's
    // `signal.Ignore`.
    let mut program =
        until_ready(WatchedChild::start(in_the_background(command("ignored inside"))));
    program.signal(libc::SIGQUIT);
    program.close_stdin();
    let (status, said) = program.wait_for_exit();
    assert_succeeded(status, &said, "ignored");
}

/// If a Go program starts with both signals ignored, its children have SIGINT ignored and SIGQUIT
/// at its default.
#[test]
fn children_of_a_program_in_the_background_start_with_go_s_signal_settings() {
    let (status, said) =
        WatchedChild::start(in_the_background(command("children"))).wait_for_exit();
    assert!(status.success(), "{status:?}: {}", said.err);
    let mut lines = 0;
    for line in said.out.lines() {
        let (name, set) = line.split_once(":\t").unwrap_or_else(|| panic!("{line}"));
        let set = u64::from_str_radix(set, 16).unwrap();
        let has = |signal: i32| set >> (signal - 1) & 1 == 1;
        assert!(!has(libc::SIGQUIT), "{line}");
        assert_eq!(has(libc::SIGINT), name == "SigIgn", "{line}");
        lines += 1;
    }
    assert_eq!(lines, 4, "{}", said.out);
}

#[test]
fn a_subscriber_receives_sigquit_instead_of_the_dump() {
    let (status, said) = quit("notified");
    assert_succeeded(status, &said, "got SIGQUIT");
}

#[test]
fn sigquit_keeps_its_default_action_without_gosched_main() {
    let (status, said) = quit("in run");
    assert_eq!(status.signal(), Some(libc::SIGQUIT), "{status:?}: {}", said.err);
    assert_eq!(said.err, "");
}
