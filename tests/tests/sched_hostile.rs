//! System calls that fail, goroutines that do not stop, and Ps that are handed off all the time:
//! nothing hangs, and no loss is silent. Each case is a program: see `src/bin/hostile_program.rs`.

use gosched_tests::preempt_runs::CAN_MOVE;
use gosched_tests::refuse;
use gosched_tests::wait::until;
use gosched_tests::watched_child::WatchedChild;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostile_program"));
    command.args(arguments);
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Runs the command, which must succeed. Returns its standard output and standard error.
fn run(mut command: Command) -> (String, String) {
    let output = command.output().expect("a program");
    let (out, err) = texts(&output);
    assert!(output.status.success() && out.ends_with("done\n"), "{}\n{out}{err}", output.status);
    (out, err)
}

fn refusing(errno: i32, calls: &[i64], arguments: &[&str]) -> Command {
    let mut command = program(arguments);
    refuse::system_calls(&mut command, errno, calls);
    command
}

fn no_p_is_lost(what: &str, poller: Option<&str>) {
    for procs in ["2", "4"] {
        let mut command = program(&["hand over", what, "3000"]);
        command.env("GOMAXPROCS", procs).envs(poller.map(|poller| ("GOSCHED_POLLER", poller)));
        let (out, err) = run(command);
        assert!(out.starts_with("lost Some(Uint64(0))\n"), "{out}{err}");
    }
}

#[test]
fn no_p_is_lost_while_the_number_of_ps_changes() {
    no_p_is_lost("procs", None);
}

#[test]
fn no_p_is_lost_while_the_number_of_ps_changes_with_the_poll_poller() {
    no_p_is_lost("procs", Some("poll"));
}

#[test]
fn no_p_is_lost_in_marked_calls() {
    no_p_is_lost("marked", None);
}

#[test]
fn no_p_is_lost_in_unmarked_calls() {
    no_p_is_lost("unmarked", None);
}

#[test]
fn no_p_is_lost_beside_timers() {
    no_p_is_lost("sleeps", None);
}

/// Returns the lines of standard error; a thread appends each line as it arrives.
fn lines_of(child: &mut std::process::Child) -> Arc<Mutex<Vec<String>>> {
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    let lines = Arc::new(Mutex::new(Vec::new()));
    let its = lines.clone();
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            its.lock().unwrap().push(line);
        }
    });
    lines
}

#[test]
fn a_goroutine_that_does_not_stop_delays_only_the_goroutine_that_stops_the_world() {
    let mut command = program(&["deaf"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a program");
    let lines = lines_of(&mut child);
    let has = |text: &str| lines.lock().unwrap().iter().any(|line| line.contains(text));
    // The report contains the stack of the goroutine that does not stop.
    until("the stall is reported", || {
        has("runtime: the world does not stop for set_procs: 1 of 3 Ps have not stopped in")
            && has("created by hostile_program::resize_beside_unstoppable in goroutine 1")
    });
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("its end");
    let (out, lines) = (texts(&output).0, lines.lock().unwrap().join("\n"));
    assert!(output.status.success() && out.starts_with("2 procs, "), "{out}{lines}");
    assert!(lines.contains("\tP"), "{lines}");
    // The ticker kept running, because each attempt to stop the world was withdrawn and retried.
    let ticks = out
        .lines()
        .find_map(|line| line.strip_prefix("2 procs, ")?.strip_suffix(" ticks"))
        .expect(&out);
    assert!(ticks.parse::<u64>().expect(ticks) > 100, "{out}{lines}");
}

#[test]
fn io_works_if_epoll_pwait2_is_refused() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::EINVAL] {
        run(refusing(errno, &[libc::SYS_epoll_pwait2], &["idle io"]));
    }
}

#[test]
fn io_works_if_two_of_the_three_epoll_wait_calls_are_refused() {
    let all = [libc::SYS_epoll_pwait2, libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
    for left in 0..all.len() {
        let refused: Vec<i64> = (0..all.len()).filter(|&at| at != left).map(|at| all[at]).collect();
        run(refusing(libc::EPERM, &refused, &["idle io"]));
    }
}

#[test]
fn io_falls_back_to_poll_if_epoll_is_refused() {
    let all = [libc::SYS_epoll_pwait2, libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
    run(refusing(libc::EPERM, &all, &["idle io"]));
    run(refusing(libc::EPERM, &[libc::SYS_epoll_create1], &["idle io"]));
    run(refusing(libc::EPERM, &[libc::SYS_epoll_create1, libc::SYS_ppoll], &["idle io"]));
}

#[test]
fn io_works_if_poll_fails_and_the_failure_is_reported_once() {
    let calls = [libc::SYS_epoll_create1, libc::SYS_ppoll];
    let mut command = refusing(libc::EPERM, &calls, &["idle io"]);
    // std calls poll(2) before main and tolerates this error.
    refuse::system_calls(&mut command, libc::EAGAIN, &[libc::SYS_poll]);
    let (_, err) = run(command);
    assert_eq!(err.matches("runtime: the poll system call fails").count(), 1, "{err}");
}

#[test]
fn goroutines_are_preempted_if_rt_tgsigqueueinfo_is_refused() {
    let (_, err) = run(refusing(libc::EPERM, &[libc::SYS_rt_tgsigqueueinfo], &["loops"]));
    assert_eq!(err, "");
}

#[test]
fn goroutines_take_turns_if_signals_are_refused_and_the_refusal_is_reported_once() {
    let calls = [libc::SYS_rt_tgsigqueueinfo, libc::SYS_tgkill];
    let sentence = "runtime: the system refuses to signal threads";
    let command = refusing(libc::EPERM, &calls, &["turns until the input ends"]);
    let mut child = WatchedChild::start(command);
    // A goroutine is preempted after a slice of CPU time, which takes longer if other processes use
    // the CPUs.
    child.wait_for("refusal", |said| said.err.contains(sentence));
    child.close_stdin();
    let (status, said) = child.wait_for_exit();
    assert!(status.success() && said.out.ends_with("done\n"), "{status}: {}{}", said.out, said.err);
    assert_eq!(said.err.matches(sentence).count(), 1, "{}", said.err);
}

#[test]
fn a_thread_that_may_not_send_signals_does_not_keep_other_threads_from_sending() {
    run(program(&["loops, filter, loops"]));
}

#[test]
fn goroutines_are_preempted_if_the_system_discards_siginfo() {
    let mut command = program(&["loops"]);
    refuse::pending_signals(&mut command);
    let (_, err) = run(command);
    assert_eq!(err, "");
}

#[test]
fn the_program_ends_with_a_message_if_sigaltstack_is_refused() {
    let output = refusing(libc::EPERM, &[libc::SYS_sigaltstack], &["turns"]).output();
    let output = output.expect("a program");
    let (out, err) = texts(&output);
    assert!(!output.status.success() && !out.contains("done"), "{out}{err}");
    let sentence = "runtime: a thread cannot run goroutines: sigaltstack failed";
    assert!(err.contains(sentence), "{out}{err}");
}

/// Runs the program with at most `most` threads. Returns `None` if the limit cannot be set here.
fn with_threads(most: u64, arguments: &[&str]) -> Option<(String, String)> {
    let mut command = program(arguments);
    if !refuse::threads(&mut command, most) {
        eprintln!("skipped: other processes of this user count too");
        return None;
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Err(why) => {
            eprintln!("skipped: the binary lies where only its owner can go: {why}");
            None
        }
        Ok(child) => {
            let output = child.wait_with_output().expect("its end");
            let (out, err) = texts(&output);
            // The dynamic loader cannot read libstd as this user.
            if output.status.code() == Some(refuse::NOT_LOADED) {
                eprintln!("skipped: the libraries lie where only their owner can go: {err}");
                return None;
            }
            let is_good = output.status.success() && out.ends_with("done\n");
            assert!(is_good, "{most} threads: {}\n{out}{err}", output.status);
            Some((out, err))
        }
    }
}

#[test]
fn a_thread_that_will_send_is_no_deadlock_if_new_threads_are_refused() {
    // The three threads are main, the thread that sends, and the thread maker.
    let Some((_, err)) = with_threads(3, &["beside a thread", "500"]) else { return };
    assert!(err.contains("refuses a thread for sysmon"), "{err}");
}

#[test]
fn goroutines_are_preempted_with_any_number_of_threads_above_one() {
    if !CAN_MOVE {
        return eprintln!("skipped: each preempted goroutine needs a thread of its own here");
    }
    // The first threads are main and the thread maker, then sysmon, then more Ms.
    for most in 2..7 {
        for arguments in [&["loops"][..], &["some of everything"]] {
            let Some((_, err)) = with_threads(most, arguments) else { return };
            let refused = err.matches("runtime: the system refuses a thread for sysmon").count();
            assert_eq!(refused, usize::from(most == 2), "{most} threads: {err}");
        }
    }
}
