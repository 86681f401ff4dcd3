//! Goroutines that block their thread, in calls that are marked and in others: other goroutines go on.
//! Each case is a program of its own: see `src/bin/blocking_program.rs`. How soon, and at what cost, is measured by
//! the bench `limits`.

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

/// The number behind a word.
fn number(text: &str, word: &str) -> u64 {
    let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("no `{word}` in: {text}"));
    let digits: String = rest.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after `{word}` in: {text}"))
}

// S116, S119, S120, S121, S142
#[test]
fn others_run_during_every_call_that_blocks() {
    for mode in ["raw", "marked", "now"] {
        for procs in ["1", "2"] {
            let text = run(&["share", mode], procs);
            assert!(number(&text, "least ") > 0, "{mode}, {procs} Ps: {text}");
        }
    }
}

// S119: also where the kernel does not tell what a thread does.
#[test]
fn others_run_where_the_kernel_does_not_tell() {
    let mut command = program(&["share", "raw"], "1");
    command.env("GOSCHED_PROC", "off");
    let text = output(command);
    assert!(number(&text, "least ") > 0, "{text}");
}

// S117, S118
#[test]
fn a_long_call_gives_its_p_away_at_once_and_a_short_one_keeps_it() {
    // Where the machine stops a thread in the middle of a short call, the call is a long one.
    wait::retry_until_eq((true, true), || {
        let text = run(&["quick"], "1");
        (number(&text, "taken ") < 2000, number(&text, "threads ") < 20)
    });
    let text = run(&["share", "now"], "1");
    assert!(number(&text, "hand-offs (") >= 10, "{text}");
}

// S122, S123, S124, S126
#[test]
fn a_goroutine_comes_back_when_there_is_a_p_and_not_before() {
    let text = run(&["comes back"], "1");
    assert_eq!(text, "early false then true\n");
}

// S116, S125: in every kind of wait that the kernel has.
#[test]
fn a_thousand_may_block_at_once() {
    for kind in ["pipe", "futex", "flock", "fifo"] {
        for mode in ["raw", "marked"] {
            let text = run(&["thousand", kind, mode, ""], "2");
            assert!(text.ends_with("all back\n"), "{kind}, {mode}: {text}");
            assert!(number(&text, "blocked ") >= 1000, "{kind}, {mode}: {text}");
        }
    }
}

#[test]
fn a_lock_of_std_s_that_is_held_across_waits_holds_nobody_up_for_ever() {
    for procs in ["1", "2", "6"] {
        assert_eq!(run(&["std mutex"], procs), "total 195\n", "{procs} Ps");
    }
}

#[test]
fn calls_end_while_the_world_stops_and_ps_come_and_go() {
    assert_eq!(run(&["resize"], "2"), "all ended\n");
}

#[test]
fn calls_may_end_by_a_panic_or_goexit_and_in_locked_threads() {
    for procs in ["1", "3"] {
        assert_eq!(run(&["ends"], procs), "all ended\n", "{procs} Ps");
    }
}

// Go's message, and status 2.
#[test]
fn too_many_threads_are_the_end() {
    let output = program(&["limit"], "2").output().unwrap();
    let text = children::stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let lines = "runtime: program exceeds 20-thread limit\nfatal error: thread exhaustion\n";
    assert!(text.starts_with(lines), "{text}");
}

/// Processes that want all of the machine, until they are dropped.
struct Burners(Vec<Child>);

impl Burners {
    fn start(count: usize) -> Burners {
        let mut command = Command::new("sh");
        // The limit of CPU time ends those of a suite that was killed.
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
fn one_that_is_not_given_a_cpu_is_not_taken_for_blocked() {
    let _burners = Burners::start(4);
    // A thread that waits for a page is blocked: where memory is short, that happens now and then.
    wait::retry_until_eq("unmarked 0\n".to_owned(), || run(&["load"], "2"));
}

// S147
#[test]
fn the_number_of_ps_follows_the_cpus_of_the_process() {
    // No number: it is chosen.
    let text = run(&["affinity"], "");
    let before = number(&text, "before ");
    if before == 1 {
        return eprintln!("skipped: one CPU");
    }
    assert_eq!(text, format!("before {before} one 1 again {before}\n"));
}

// S60, S116
#[test]
fn a_timer_is_on_time_beside_one_that_blocks_the_only_p() {
    assert_eq!(run(&["timer"], "1"), "fired\n");
}

// S140, S141
#[test]
fn goroutines_that_sleep_a_little_again_and_again_hold_nobody_up() {
    for procs in ["1", "2"] {
        assert_eq!(run(&["naps"], procs), "went on\n", "{procs} Ps");
    }
}

// It sleeps for a millisecond between two looks, about.
#[test]
fn sysmon_costs_little_beside_goroutines_that_yield() {
    wait::retry_until_eq((true, true), || {
        let looks = number(&run(&["watcher", "500"], "2"), "looks ");
        (looks > 0, looks <= 1100)
    });
}

// S147, S165
#[test]
fn a_line_about_the_scheduler_is_printed_when_asked() {
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
fn a_child_forked_in_a_call_goes_on_without_others() {
    for procs in ["1", "2"] {
        assert_eq!(run(&["fork"], procs), "all children came back\n", "{procs} Ps");
    }
}
