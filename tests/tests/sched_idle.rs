//! What the runtime costs when there is nothing to do, and how many threads it has. Each case is a
//! program of its own: see `src/bin/sched_program.rs`. These rules are about time, so these tests wait.

use gosched_tests::children;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn program(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sched_program"));
    command.arg(name);
    command
}

/// What a process has used: CPU time in clock ticks, and for each thread how often it was switched to.
#[derive(Debug, PartialEq)]
struct Use {
    cpu: u64,
    switches: BTreeMap<String, u64>,
}

fn used(process: u32) -> Use {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let after = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let cpu = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    let mut switches = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let count = status
            .lines()
            .filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .map(|count| count.trim().parse::<u64>().unwrap())
            .sum();
        switches.insert(entry.file_name().into_string().unwrap(), count);
    }
    Use { cpu, switches }
}

/// A program that has said that it is idle.
fn idle(name: &str) -> Child {
    let mut command = program(name);
    command.env("GOMAXPROCS", "4").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "idle\n");
    child
}

fn stays_idle(name: &str) {
    let mut child = idle(name);
    // Once just after it went idle, once after its surplus threads have ended.
    for settling in [Duration::from_millis(500), Duration::from_secs(11)] {
        std::thread::sleep(settling);
        // On a busy machine it settles later.
        let mut seen = vec![used(child.id())];
        while seen.len() < 2 || seen[seen.len() - 2] != seen[seen.len() - 1] {
            assert!(seen.len() < 5, "{name}: woken or busy after {settling:?}: {seen:#?}");
            std::thread::sleep(Duration::from_secs(2));
            seen.push(used(child.id()));
        }
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

// S110, S113, S115
#[test]
fn an_idle_process_uses_no_cpu_and_is_never_woken() {
    stays_idle("idle");
}

// S110, S113
#[test]
fn a_process_whose_run_has_returned_is_never_woken() {
    stays_idle("idle in run");
}

fn numbers(text: &str, label: &str) -> Vec<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no `{label}` in: {text}"));
    line.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

// S46, S47, S51
#[test]
fn surplus_threads_end_within_ten_seconds_and_the_rest_goes_on() {
    let start = Instant::now();
    let output = program("surplus").env("GOMAXPROCS", "2").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}: {}", children::stderr(&output));
    let most = numbers(&text, "at most ");
    assert!(most[0] >= 40, "each tied goroutine has a thread: {text}");
    let last = numbers(&text, "at last ");
    assert!(last[0] >= 2 && last[0] <= 5, "at least procs, and few: {text}");
    assert!(last[1] <= 8, "threads of the process: {text}");
    assert!(text.ends_with("works\n"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
}

// S26, S50, S58, S186
#[test]
fn a_hundred_thousand_parked_goroutines_need_a_handful_of_threads() {
    // Guards by mprotect take two mappings a stack, of which a process may have 65530.
    let mut many = program("many");
    let output = many.env("GOMAXPROCS", "2").env_remove("GOSCHED_GUARD").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}: {}", children::stderr(&output));
    assert!(text.contains("goroutines 100001\n"), "{text}");
    let threads = numbers(&text, "threads ");
    // A busy machine stops threads in the middle of something, such as a page fault: each P goes on with another.
    let most = 8 + numbers(&text, "stopped ")[0].min(56);
    assert!(threads.iter().all(|&threads| threads <= most), "{text}");
    assert!(text.ends_with("goroutines 1\n"), "{text}");
}

// S41, S61
#[test]
fn refused_threads_are_reported_once_and_done_without() {
    // SAFETY: geteuid has no precondition.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can become a user without other processes");
        return;
    }
    let output = program("no threads").env("GOMAXPROCS", "8").output().unwrap();
    let text = children::stderr(&output);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "total 1000\n");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("thread")).collect();
    assert_eq!(lines.len(), 1, "said once: {text}");
}

#[test]
fn locked_goroutines_go_on_with_the_threads_there_are() {
    let program = env!("CARGO_BIN_EXE_sched_program");
    let output = Command::new(program).arg("no threads for locked ones").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("all joined"), "{:?}: {text}", output.status);
}

fn resident(process: u32) -> usize {
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn free_memory_goes_back_to_the_system_when_all_is_idle() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_alloc_program"));
    let mut child =
        command.arg("idle").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(numbers(&line, "idle ")[0] > 20 << 20, "much is still there: {line}");
    let before = resident(child.id());
    let start = Instant::now();
    loop {
        let (waited, now) = (start.elapsed(), resident(child.id()));
        if now < 20 << 20 {
            break;
        }
        assert!(waited < Duration::from_secs(20), "{before} bytes, {now} after {waited:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
    drop(child.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "works");
    assert!(child.wait().unwrap().success());
}
