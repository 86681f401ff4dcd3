//! Goroutines that block their thread, in marked and in unmarked calls, while other goroutines
//! continue. Each case is a separate program: see `src/bin/blocking_program.rs`. The bench `limits`
//! measures delays and costs.

use gosched_tests::preempt_runs::CAN_MOVE;
use gosched_tests::watched_child::WatchedChild;
use gosched_tests::{children, wait};
use std::process::{Child, Command, Stdio};

fn program(arguments: &[&str], procs: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blocking_program"));
    command.args(arguments).env("GOMAXPROCS", procs).env_remove("GOSCHED_SEED");
    command
}

fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}: {:?}: {}", output.status, children::stderr(&output));
    text
}

fn run(arguments: &[&str], procs: &str) -> String {
    output(program(arguments, procs))
}

/// Returns the number that follows `word`.
fn number(text: &str, word: &str) -> u64 {
    let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("no `{word}` in: {text}"));
    let digits: String = rest.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after `{word}` in: {text}"))
}

// S116, S119, S120, S121, S142
#[test]
fn other_goroutines_run_during_every_blocking_call() {
    for mode in ["raw", "marked", "now"] {
        for procs in ["1", "2"] {
            let text = run(&["share", mode], procs);
            assert!(number(&text, "least ") > 0, "{mode}, {procs} Ps: {text}");
        }
    }
}

// S119, without `/proc`: sysmon cannot read whether a thread is blocked in the kernel.
#[test]
fn other_goroutines_run_during_blocking_calls_without_proc() {
    let mut command = program(&["share", "raw"], "1");
    command.env("GOSCHED_PROC", "off");
    let text = output(command);
    assert!(number(&text, "least ") > 0, "{text}");
}

// S117, S118
#[test]
fn a_long_call_hands_off_its_p_at_once_and_a_short_call_keeps_it() {
    // If the machine stops a thread in the middle of a short call, the call counts as a long one.
    wait::retry_until_eq((true, true), || {
        let text = run(&["quick"], "1");
        (number(&text, "taken ") < 2000, number(&text, "threads ") < 20)
    });
    let text = run(&["share", "now"], "1");
    assert!(number(&text, "hand-offs (") >= 10, "{text}");
}

// S122, S123, S124, S126
#[test]
fn a_goroutine_continues_after_a_call_when_a_p_is_free_and_not_before() {
    let text = run(&["comes back"], "1");
    assert_eq!(text, "early false then true\n");
}

// S116, S125: for four kinds of waits in the kernel.
#[test]
fn a_thousand_goroutines_can_block_at_once() {
    for kind in ["pipe", "futex", "flock", "fifo"] {
        for mode in ["raw", "marked"] {
            let text = run(&["thousand", kind, mode, ""], "2");
            assert!(text.ends_with("all back\n"), "{kind}, {mode}: {text}");
            assert!(number(&text, "blocked ") >= 1000, "{kind}, {mode}: {text}");
        }
    }
}

#[test]
fn a_std_mutex_held_across_waits_blocks_no_goroutine_forever() {
    for procs in ["1", "2", "6"] {
        assert_eq!(run(&["std mutex"], procs), "total 195\n", "{procs} Ps");
    }
}

#[test]
fn calls_end_while_the_world_stops_and_the_number_of_ps_changes() {
    assert_eq!(run(&["resize"], "2"), "all ended\n");
}

#[test]
fn blocking_calls_may_end_by_a_panic_or_goexit_and_on_locked_threads() {
    for procs in ["1", "3"] {
        assert_eq!(run(&["ends"], procs), "all ended\n", "{procs} Ps");
    }
}

// Prints Go's message, and exits with status 2.
#[test]
fn exceeding_the_thread_limit_is_fatal() {
    let output = program(&["limit"], "2").output().unwrap();
    let text = children::stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let lines = "runtime: program exceeds 20-thread limit\nfatal error: thread exhaustion\n";
    assert!(text.starts_with(lines), "{text}");
}

/// Processes that keep the CPUs busy until this value is dropped.
struct Burners(Vec<Child>);

impl Burners {
    fn start(count: usize) -> Burners {
        let mut command = Command::new("sh");
        // The limit on CPU time ends processes that a killed suite leaves behind.
        command.args(["-c", "ulimit -t 100; while :; do :; done"]).stdin(Stdio::null());
        Burners((0..count).map(|_| command.spawn().unwrap()).collect())
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_goroutine_that_waits_for_a_cpu_is_not_taken_for_blocked() {
    let _burners = Burners::start(4);
    // A thread that waits for a page is blocked, which sometimes happens when memory is short.
    wait::retry_until_eq("unmarked 0\n".to_owned(), || run(&["load"], "2"));
}

// S147
#[test]
fn the_number_of_ps_follows_the_cpus_of_the_process() {
    // With an empty `GOMAXPROCS`, the runtime chooses the number of Ps.
    let text = run(&["affinity"], "");
    let before = number(&text, "before ");
    if before == 1 {
        return eprintln!("skipped: one CPU");
    }
    assert_eq!(text, format!("before {before} one 1 again {before}\n"));
}

// S60, S116
#[test]
fn a_timer_fires_while_a_goroutine_blocks_the_only_p() {
    assert_eq!(run(&["timer"], "1"), "fired\n");
}

// S140, S141
#[test]
fn goroutines_that_block_briefly_and_often_do_not_hold_up_other_goroutines() {
    for procs in ["1", "2"] {
        assert_eq!(run(&["naps"], procs), "went on\n", "{procs} Ps");
    }
}

// sysmon sleeps for about a millisecond between two rounds.
#[test]
fn sysmon_wakes_at_most_about_once_per_millisecond_beside_goroutines_that_yield() {
    wait::retry_until_eq((true, true), || {
        let looks = number(&run(&["watcher", "500"], "2"), "looks ");
        (looks > 0, looks <= 1100)
    });
}

// S147, S165
#[test]
fn schedtrace_prints_lines_about_the_scheduler() {
    let mut command = program(&["trace"], "2");
    command.env("GODEBUG", "schedtrace=50");
    let mut child = WatchedChild::start(command);
    let is_line = |line: &&str| line.starts_with("SCHED ");
    child.wait_for("lines", |said| said.err.lines().filter(is_line).count() > 4);
    child.close_stdin();
    let (status, said) = child.wait_for_exit();
    assert!(status.success(), "{status:?}: {}", said.err);
    let lines: Vec<&str> = said.err.lines().filter(is_line).collect();
    let words = [
        "ms: gomaxprocs=2 idleprocs=",
        " threads=",
        " spinningthreads=",
        " needspinning=",
        " idlethreads=",
        " runqueue=",
        " [ ",
        " ] schedticks=[ ",
    ];
    for line in lines {
        let mut rest = line;
        for word in words {
            rest = rest.split_once(word).unwrap_or_else(|| panic!("no `{word}`: {line}")).1;
        }
        assert!(rest.ends_with(" ]") || rest.ends_with(']'), "{line}");
    }
}

#[test]
fn a_child_forked_in_a_blocking_call_continues_without_the_other_goroutines() {
    for procs in ["1", "2"] {
        assert_eq!(run(&["fork"], procs), "all children came back\n", "{procs} Ps");
    }
}

/// The goroutine that computes must leave its thread, because there is no other thread.
#[test]
fn a_timer_fires_although_the_only_free_thread_computes_and_more_are_refused() {
    if !CAN_MOVE {
        return;
    }
    assert_eq!(run(&["no thread for a timer"], "4"), "the timer fired\n");
}
