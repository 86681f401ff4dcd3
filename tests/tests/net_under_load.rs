//! Goroutines made ready by I/O are served although all Ps are busy: with loops that never yield,
//! with goroutines that yield all the time, with channels, or with sockets. Each case is a separate
//! process, `net_program`.
//!
//! The bench `limits` measures how soon they are served.

use gosched::runtime;
use gosched_tests::watched_child::WatchedChild;
use std::process::Command;

const REQUESTS: usize = if cfg!(debug_assertions) { 60 } else { 200 };

/// Runs the program, which fails unless each request is answered with the right bytes, and returns
/// its output.
fn run(mode: &str, procs: usize) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_net_program"));
    command.args([mode, &REQUESTS.to_string()]).env("GOMAXPROCS", procs.to_string());
    let (status, said) = WatchedChild::start(command).wait_for_exit();
    assert!(status.success(), "{mode}, {procs} Ps: {status:?}: {}{}", said.out, said.err);
    said.out
}

#[track_caller]
fn all_are_served(mode: &str, procs: usize) {
    let out = run(mode, procs);
    assert!(out.contains(&format!("requests {REQUESTS} ")), "{mode}, {procs} Ps: {out}");
}

#[test]
fn an_echo_is_served_beside_loops_that_never_yield() {
    for procs in [1, runtime::num_cpu()] {
        all_are_served("loops", procs);
    }
}

#[test]
fn an_echo_to_a_goroutine_is_served_beside_loops_that_never_yield() {
    for procs in [1, runtime::num_cpu()] {
        all_are_served("loops, client inside", procs);
    }
}

#[test]
fn an_echo_is_served_beside_goroutines_that_yield_all_the_time() {
    all_are_served("yields", 1);
}

#[test]
fn an_echo_is_served_beside_channels_that_are_never_empty() {
    all_are_served("channels", 1);
}

#[test]
fn an_echo_is_served_beside_sockets_that_are_never_idle() {
    all_are_served("sockets", 1);
}

#[test]
fn timers_and_yielding_goroutines_make_progress_beside_sockets_that_are_never_idle() {
    let out = run("sockets, and a timer", 1);
    assert!(out.contains("sleeps ") && out.contains("yields "), "{out}");
}
