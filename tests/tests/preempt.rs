//! A goroutine that never yields cannot keep a P: who gets how much, and how soon. Each case is a program of
//! its own: see `src/bin/preempt_program`.

use gosched_tests::preempting::{Mode, PROCS, Program, Said};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

const MODES: [Mode; 2] = [Mode::Both, Mode::InPlace];

fn program(arguments: &[&str], procs: usize) -> Program {
    Program::new(env!("CARGO_BIN_EXE_preempt_program"), arguments, procs)
}

/// For what depends on time: a machine that is busy with other things may spoil it a few times.
fn at_best(attempt: impl Fn() -> Program, is_right: impl Fn(&Said) -> bool) {
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let said = attempt().alone().run();
        println!("{said}");
        if is_right(&said) {
            return;
        }
        seen.push(said.text);
    }
    panic!("never: {seen:#?}");
}

// S131
#[test]
fn a_goroutine_that_never_yields_does_not_keep_its_p() {
    for mode in MODES {
        at_best(
            || program(&["endless loop"], 1).mode(mode),
            |said| {
                assert_eq!(said.text, "Done\n");
                let seconds = said.took.as_secs_f64();
                assert!(seconds >= 1.0, "{mode:?}: {seconds} s");
                seconds < 3.0
            },
        );
    }
}

// S132
#[test]
fn a_loop_without_an_end_does_not_keep_others_from_a_timer() {
    for procs in PROCS {
        at_best(
            || program(&["never one"], procs),
            |said| {
                assert_eq!(said.text, "go 1.13 has never been here\n", "{procs} Ps");
                said.took < Duration::from_secs(3)
            },
        );
    }
}

#[test]
fn goroutines_that_share_a_slice_do_not_keep_others_waiting() {
    for procs in PROCS {
        at_best(
            || program(&["starters"], procs),
            |said| {
                assert_eq!(said.text, "all\n", "{procs} Ps");
                said.took < Duration::from_secs(8)
            },
        );
    }
}

// As in Go; and it shows that the tests above can fail.
#[test]
fn it_does_where_preemption_by_signals_is_off() {
    let mut off = program(&["endless loop"], 1).set("GODEBUG", "asyncpreemptoff=1");
    let mut child = off.command().stdout(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        assert_eq!(child.try_wait().unwrap(), None, "it ended: main was let go on");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

// S136: as one that yields, which goes on at the next 61st tick.
#[test]
fn one_that_is_preempted_goes_to_the_tail_of_the_global_queue() {
    for mode in MODES {
        let order = || program(&["order"], 1).mode(mode).slice("2ms");
        // More if it was preempted again before it had gone on.
        at_best(order, |said| (1..=122).contains(&said.number("before")));
    }
}

fn is_prompt(said: &Said) -> bool {
    said.is_preempted()
        && said.number("ticks") > 50
        && said.number("p50") < 3_000
        && said.number("most") < 1_000_000
}

#[test]
fn a_timer_is_on_time_beside_goroutines_that_never_yield() {
    for procs in [1, 2] {
        for per_p in ["1", "4"] {
            for mode in MODES {
                at_best(|| program(&["ticker", per_p], procs).mode(mode), is_prompt);
            }
        }
    }
}

#[test]
fn goroutines_that_never_yield_share_alike() {
    for (count, procs) in [("2", 1), ("16", 2), ("64", 2)] {
        for mode in MODES {
            let slice = if count == "64" { "2ms" } else { "10ms" };
            let fair = || program(&["fair", count], procs).mode(mode).slice(slice);
            at_best(fair, |said| {
                said.was_moved_if_allowed();
                said.number("jain") >= 9_000
            });
        }
    }
}

#[test]
fn a_thousand_that_never_yield_all_get_on() {
    for procs in PROCS {
        // Where each needs a thread, more than 64 begin only now and then.
        let most = if cfg!(target_feature = "crt-static") { "60" } else { "1000" };
        for (mode, count) in [(Mode::Both, most), (Mode::InPlace, "60")] {
            let hogs = || program(&["many hogs", count], procs).mode(mode).slice("500us");
            at_best(hogs, |said| {
                said.was_moved_if_allowed();
                assert!(said.number("least") > 0, "{said}");
                said.number("most") < 1_000_000
            });
        }
    }
}

#[test]
fn the_slice_is_what_the_environment_says() {
    let slices = |slice| move || program(&["slice"], 1).slice(slice);
    let preempted = |said: &Said| said.number("preempted");
    at_best(slices("500us"), |said| preempted(said) > 200);
    at_best(slices("5ms"), |said| (15..=150).contains(&preempted(said)));
    // Main's timer may preempt at any time: once or twice.
    at_best(slices("2s"), |said| preempted(said) <= 5);
}

#[test]
fn code_that_must_not_be_preempted_is_not() {
    for mode in MODES {
        let said = program(&["no preempt"], 1).mode(mode).slice("1ms").run();
        assert_eq!(said.number("meanwhile"), 0, "{said}");
        assert!(said.number("afterwards") > 0, "{said}");
    }
}

#[test]
fn one_p_is_one_goroutine_at_a_time() {
    for mode in MODES {
        at_best(
            || program(&["beats"], 1).mode(mode),
            |said| {
                said.was_moved_if_allowed();
                let (one, several) = (said.number("one"), said.number("several"));
                one >= 1000 && several * 50 < one
            },
        );
    }
}

// Their P was taken while they were blocked: nobody stops them but the watcher.
#[test]
fn those_who_come_back_from_a_call_do_not_run_beside_the_only_p() {
    at_best(|| program(&["back"], 1), |said| said.number("share") < 1_300);
}

#[test]
fn no_more_threads_run_than_there_are_ps() {
    for procs in PROCS {
        for mode in MODES {
            at_best(
                || program(&["threads"], procs).mode(mode),
                |said| {
                    said.was_moved_if_allowed();
                    let (samples, more) = (said.number("samples"), said.number("more"));
                    samples >= 50 && more * 20 <= samples
                },
            );
        }
    }
}

/// Whether this is a run of `ci/long`.
fn is_long() -> bool {
    let seconds = std::env::var("GOSCHED_PREEMPT_SECONDS").unwrap_or_default();
    seconds.parse().is_ok_and(|seconds: f64| seconds >= 5.0)
}

/// 3000 goroutines, each for three slices.
fn many(mode: Mode, most_threads: usize) -> Program {
    let (micros, slice) = if is_long() { ("30000", "10ms") } else { ("900", "300us") };
    let arguments = ["many", "3000", micros, &most_threads.to_string()];
    program(&arguments, 2).mode(mode).slice(slice).alone()
}

fn ended_cheaply(said: &Said, most_threads: u64) {
    println!("{said}");
    said.was_moved_if_allowed();
    assert_eq!(said.number("done"), 3000, "{said}");
    assert!(said.number("used") <= 160, "{said}");
    assert!(said.number("ours") <= most_threads, "{said}");
    // The main thread, the sampler, the program's watchdog, the runtime's watcher.
    assert!(said.number("threads") <= most_threads + 4, "{said}");
}

#[test]
fn many_that_compute_end_in_time_on_few_threads() {
    ended_cheaply(&many(Mode::Both, 34).run(), 34);
}

#[test]
fn many_that_stop_in_place_end_in_time_on_a_few_hundred_threads() {
    ended_cheaply(&many(Mode::InPlace, 300).run(), 300);
}

/// A user of no other process, who may have a hundred threads; root may have any number.
fn become_limited(user: u32) -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
    // SAFETY: a valid limit.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) };
    // SAFETY: it has no precondition.
    let group = unsafe { libc::setgid(user) };
    // SAFETY: it has no precondition.
    let own = unsafe { libc::setuid(user) };
    match (limited, group, own) {
        (0, 0, 0) => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn many_end_where_the_system_allows_few_threads() {
    // SAFETY: it has no precondition.
    if unsafe { libc::getuid() } != 0 {
        return eprintln!("skipped: other processes of this user count too");
    }
    let mut program = many(Mode::Both, 34);
    let user = 54_321 + std::process::id() % 1000;
    // SAFETY: it only makes system calls.
    unsafe { program.command().pre_exec(move || become_limited(user)) };
    match program.command().stdout(Stdio::null()).spawn() {
        Err(why) => eprintln!("skipped: the binary lies where only its owner can go: {why}"),
        Ok(mut probe) => {
            probe.kill().unwrap();
            probe.wait().unwrap();
            program.command().stdout(Stdio::piped());
            ended_cheaply(&program.run(), 34);
        }
    }
}
