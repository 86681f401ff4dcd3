//! Goroutines that block their thread, in calls that are marked and in others: nobody else waits for them.
//! Each case is a program of its own: see `src/bin/blocking_program.rs`.

use gosched_tests::children;
use std::process::{Child, Command, Stdio};
use std::sync::RwLock;

fn program(arguments: &[&str], procs: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blocking_program"));
    command.args(arguments).env("GOMAXPROCS", procs).env_remove("GOSCHED_SEED");
    command
}

/// Held by those who measure time, so that others do not run beside them: some burn all CPUs.
static QUIET: RwLock<()> = RwLock::new(());

fn output(command: Command) -> String {
    let _beside = QUIET.read();
    said(command)
}

fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}: {:?}: {}", output.status, children::stderr(&output));
    text
}

fn run(arguments: &[&str], procs: &str) -> String {
    output(program(arguments, procs))
}

/// With nothing of this suite beside it.
fn run_alone(arguments: &[&str], procs: &str) -> String {
    let _alone = QUIET.write();
    said(program(arguments, procs))
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
    let text = run(&["quick"], "1");
    assert!(number(&text, "taken ") < 2000, "{text}");
    let text = run(&["share", "now"], "1");
    assert!(number(&text, "hand-offs (") >= 10, "{text}");
}

// S122, S123, S124, S126
#[test]
fn a_goroutine_comes_back_when_there_is_a_p_and_not_before() {
    let text = run(&["comes back"], "1");
    assert_eq!(text, "early false then true alone true\n");
}

// S116, S125: in every kind of wait that the kernel has.
#[test]
fn a_thousand_may_block_at_once() {
    for kind in ["pipe", "futex", "flock", "fifo"] {
        for mode in ["raw", "marked"] {
            let text = run(&["thousand", kind, mode, ""], "2");
            assert!(text.ends_with("all back\n"), "{kind}, {mode}: {text}");
            assert!(number(&text, "blocked ") >= 900, "{kind}, {mode}: {text}");
        }
    }
}

// S125
#[test]
fn threads_of_those_that_came_back_are_gone_after_a_while() {
    let text = run(&["thousand", "pipe", "marked", "gone"], "2");
    assert!(number(&text, "gone ") <= 8, "{text}");
}

#[test]
fn a_lock_of_std_s_that_is_held_across_waits_holds_nobody_up_for_ever() {
    for procs in ["1", "2", "6"] {
        assert_eq!(run(&["std mutex"], procs), "total 195\n", "{procs} Ps");
    }
}

#[test]
fn calls_end_while_the_world_stops_and_ps_come_and_go() {
    assert_eq!(run(&["resize"], "2"), "goroutines 1\n");
}

#[test]
fn calls_may_end_by_a_panic_or_goexit_and_in_locked_threads() {
    for procs in ["1", "3"] {
        assert_eq!(run(&["ends"], procs), "goroutines 1\n", "{procs} Ps");
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
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
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
    let _beside = QUIET.read();
    let _burners = Burners::start(4);
    let text = said(program(&["load"], "2"));
    assert_eq!(text, "unmarked 0\n");
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
    assert_eq!(run(&["timer"], "1"), "on time true\n");
}

// S140, S141
// Each of the twenty would need a large part of a second to use a slice of CPU time.
#[test]
fn goroutines_that_sleep_a_little_again_and_again_hold_nobody_up() {
    for procs in ["1", "2"] {
        let tries = (0..4).map(|_| number(&run_alone(&["naps"], procs), "longest "));
        let mut seen = Vec::new();
        let is_short = tries.inspect(|&longest| seen.push(longest)).any(|longest| longest < 100);
        assert!(is_short, "{procs} Ps: {seen:?} ms");
    }
}

#[test]
fn the_watcher_costs_little_beside_goroutines_that_yield() {
    // Machines differ in what a sleep costs them.
    let mut seen = Vec::new();
    let tries = (0..4).map(|_| run_alone(&["watcher"], "2"));
    let is_little = tries.inspect(|said| seen.push(said.clone())).any(|said| {
        let (looks, cost) = (number(&said, "looks "), number(&said, "cost "));
        (100..=1100).contains(&looks) && cost <= 3000
    });
    assert!(is_little, "{seen:?}");
}

// S147, S165
#[test]
fn a_line_about_the_scheduler_is_printed_when_asked() {
    let mut command = program(&["trace"], "2");
    command.env("GODEBUG", "schedtrace=50");
    let output = command.output().unwrap();
    let text = children::stderr(&output);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("SCHED ")).collect();
    assert!(lines.len() >= 4, "{text}");
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
