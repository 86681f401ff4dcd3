//! A goroutine that never yields does not keep its P: other goroutines make progress, in every
//! allowed mode of preemption. Each case is a program: see `src/bin/preempt_program`.
//! `benches/limits` measures how soon and how evenly goroutines run.
//!
//! `GOSCHED_PREEMPT_SECONDS` is the duration of each case.

use gosched_tests::preempt_runs::{
    self, CAN_MOVE, Mode, PROCS, Program, ProgramOutput, repetitions, run_until,
};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

const MODES: [Mode; 2] = [Mode::Both, Mode::InPlace];

/// How long main sleeps beside an endless loop. The program uses the same value.
const ENDLESS_SLEEP: Duration = Duration::from_millis(200);

fn program(arguments: &[&str], procs: usize) -> Program {
    Program::new(env!("CARGO_BIN_EXE_preempt_program"), arguments, procs)
}

// S131
#[test]
fn a_goroutine_that_never_yields_does_not_keep_its_p() {
    for mode in MODES {
        let said = program(&["endless loop"], 1).mode(mode).run();
        assert_eq!(said.text, "Done\n");
        assert!(said.took >= ENDLESS_SLEEP, "{mode:?}: {:?}", said.took);
    }
}

// S132
#[test]
fn an_endless_loop_does_not_delay_a_timer_of_another_goroutine() {
    for procs in PROCS {
        let said = program(&["never one"], procs).run();
        assert_eq!(said.text, "go 1.13 has never been here\n", "{procs} Ps");
    }
}

#[test]
fn goroutines_that_share_a_slice_do_not_keep_others_waiting() {
    for procs in PROCS {
        let said = program(&["starters"], procs).run();
        assert!(said.text.starts_with("all micros "), "{procs} Ps: {said}");
    }
}

// As in Go. This test also shows that the tests above can fail.
#[test]
fn a_goroutine_that_never_yields_keeps_its_p_if_asyncpreemptoff_is_set() {
    let mut off = program(&["endless loop"], 1).set("GODEBUG", "asyncpreemptoff=1");
    let mut child = off.command().stdout(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while start.elapsed() < 5 * ENDLESS_SLEEP {
        assert_eq!(child.try_wait().unwrap(), None, "it ended: main was let go on");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

// S136: like a goroutine that yields, a preempted goroutine runs again at the next 61st scheduler
// tick.
#[test]
fn a_preempted_goroutine_goes_to_the_tail_of_the_global_queue() {
    for mode in MODES {
        let order = || program(&["order"], 1).mode(mode).slice("2ms");
        // `before` is above 61 if the goroutine was preempted again before it read the counter.
        run_until(order, |said| (1..=122).contains(&said.number("before")));
    }
}

// `benches/limits` measures how late the timer is.
#[test]
fn a_timer_is_on_time_beside_goroutines_that_never_yield() {
    for procs in [1, 2] {
        for per_p in ["1", "4"] {
            for mode in MODES {
                let said = program(&["ticker", per_p], procs).mode(mode).run();
                said.assert_preempted();
                assert!(said.number("ticks") >= 20, "{said}");
            }
        }
    }
}

// `benches/limits` measures how evenly they run.
#[test]
fn goroutines_that_never_yield_all_make_progress() {
    for (count, procs) in [("2", 1), ("16", 2), ("64", 2)] {
        for mode in MODES {
            let said = program(&["fair", count], procs).mode(mode).slice("1ms").run();
            said.assert_moved_if_allowed();
            assert!(said.number("least") > 0, "{said}");
        }
    }
}

#[test]
fn a_thousand_goroutines_that_never_yield_all_make_progress() {
    for procs in PROCS {
        // A goroutine stopped in place keeps its thread. With more than 64 of them, further
        // goroutines begin only in every 61st slice.
        let many = if procs == 2 { 1000 } else { repetitions(100, 1000) };
        for (mode, count) in [(Mode::Both, if CAN_MOVE { many } else { 60 }), (Mode::InPlace, 60)] {
            let arguments = ["many hogs", &count.to_string()];
            let said = program(&arguments, procs).mode(mode).slice("500us").run();
            said.assert_moved_if_allowed();
            assert!(said.number("least") > 0, "{said}");
        }
    }
}

// `benches/limits` measures how exactly the slice is kept.
#[test]
fn gosched_slice_sets_the_length_of_a_slice() {
    // The goroutines compute for 200 ms of CPU time.
    let slices = |slice| move || program(&["slice", "200000", "1000"], 1).slice(slice);
    run_until(slices("500us"), |said| said.number("preempted") > 20);
    run_until(slices("5ms"), |said| (1..200).contains(&said.number("preempted")));
    run_until(slices("2s"), |said| said.number("preempted") == 0);
}

#[test]
fn no_preempt_keeps_a_goroutine_from_being_preempted() {
    for mode in MODES {
        let said = program(&["no preempt"], 1).mode(mode).slice("1ms").run();
        assert_eq!(said.number("meanwhile"), 0, "{said}");
        assert!(said.number("afterwards") > 0, "{said}");
    }
}

#[test]
fn one_p_runs_one_goroutine_at_a_time() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        return eprintln!("skipped: a thread that looks on needs a CPU of its own");
    }
    for mode in MODES {
        run_until(
            || program(&["beats"], 1).mode(mode),
            |said| {
                said.assert_moved_if_allowed();
                let (one, several) = (said.number("one"), said.number("several"));
                one >= 1000 && several * 50 < one
            },
        );
    }
}

// The goroutines lost their P while they were blocked, so only sysmon stops them. `benches/limits`
// measures that they do not run beside the goroutine that has the P.
#[test]
fn goroutines_that_return_from_unmarked_calls_make_progress_beside_a_busy_p() {
    let said = program(&["back"], 1).run();
    assert!(said.number("least") > 0, "{said}");
}

// The program fails if more threads than Ps run all the time. `benches/limits` measures how often
// that happens.
#[test]
fn no_more_threads_run_than_there_are_ps() {
    for procs in PROCS {
        for mode in MODES {
            let said = program(&["threads"], procs).mode(mode).run();
            said.assert_moved_if_allowed();
            assert!(said.number("few") >= 50, "{said}");
        }
    }
}

/// Returns whether this run was started by `ci/long`.
fn is_long() -> bool {
    preempt_runs::seconds().is_some_and(|seconds| seconds >= 5.0)
}

/// Returns the number of goroutines of [`many`].
fn count_of_many() -> usize {
    repetitions(1000, 3000)
}

/// Returns a program with many goroutines that each compute for three slices.
fn many(mode: Mode, most_threads: usize) -> Program {
    let (micros, slice) = if is_long() { ("30000", "10ms") } else { ("900", "300us") };
    let arguments = ["many", &count_of_many().to_string(), micros, &most_threads.to_string()];
    program(&arguments, 2).mode(mode).slice(slice)
}

// `benches/limits` measures how much CPU time the goroutines need.
fn assert_all_ended_on_few_threads(said: &ProgramOutput, most_threads: u64) {
    said.assert_moved_if_allowed();
    assert_eq!(said.number("done"), count_of_many() as u64, "{said}");
    assert!(said.number("ours") <= most_threads, "{said}");
    // Other threads: the main thread, the sampler, the program's watchdog, sysmon, and threads that
    // have ended but that the kernel still counts, one per CPU of the calibration.
    let others = 4 + std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    assert!(said.number("threads") <= most_threads + others, "{said}");
}

#[test]
fn many_goroutines_that_compute_finish_on_few_threads() {
    assert_all_ended_on_few_threads(&many(Mode::Both, 34).run(), 34);
}

#[test]
fn many_goroutines_that_are_stopped_in_place_finish_on_a_few_hundred_threads() {
    assert_all_ended_on_few_threads(&many(Mode::InPlace, 300).run(), 300);
}

/// Becomes a user that has no other process and may have 100 threads. For root the limit does not
/// apply.
fn become_limited(user: u32) -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
    // SAFETY: `limit` is valid for reads.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) };
    // SAFETY: `setgid` has no precondition.
    let group = unsafe { libc::setgid(user) };
    // SAFETY: `setuid` has no precondition.
    let own = unsafe { libc::setuid(user) };
    match (limited, group, own) {
        (0, 0, 0) => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn many_goroutines_finish_where_the_system_allows_few_threads() {
    // SAFETY: `getuid` has no precondition.
    if unsafe { libc::getuid() } != 0 {
        return eprintln!("skipped: other processes of this user count too");
    }
    let mut program = many(Mode::Both, 34);
    let user = 50_000 + std::process::id() % 10_000;
    // SAFETY: the closure only makes system calls.
    unsafe { program.command().pre_exec(move || become_limited(user)) };
    match program.run_if_allowed() {
        Err(why) => eprintln!("skipped: this user cannot run the program: {why}"),
        Ok(said) => assert_all_ended_on_few_threads(&said, 34),
    }
}
