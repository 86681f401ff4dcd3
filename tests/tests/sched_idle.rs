//! What the runtime costs when there is nothing to do, and how many threads it has. Each case is a
//! program: see `src/bin/sched_program.rs`. Some of these rules hold only after the runtime's idle
//! time of 10 s; those programs run in parallel. The bench `limits` measures the additional delay.

use gosched_tests::{children, wait};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Checks that wait for the idle time, by the name that their test passes to [`slow`].
const SLOW: [(&str, fn()); 6] = [
    ("an idle process", || stays_idle("idle")),
    ("a process whose run has returned", || stays_idle("idle in run")),
    ("surplus threads", surplus_threads_end),
    ("threads of those that came back", threads_of_calls_end),
    ("free memory", free_memory_goes_back),
    ("the last ordinary thread", a_deadlock_is_found_later),
];

type Outcome = Result<(), String>;

/// The outcomes of all checks in [`SLOW`], which start when the first test needs one of them.
static STARTED: LazyLock<Mutex<BTreeMap<&str, Receiver<Outcome>>>> = LazyLock::new(|| {
    let start = |(name, check): (&'static str, fn())| {
        let (done, outcome) = channel();
        std::thread::spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(check));
            let _ = done.send(result.map_err(|payload| match payload.downcast::<String>() {
                Ok(text) => *text,
                Err(_) => "see above".into(),
            }));
        });
        (name, outcome)
    };
    Mutex::new(SLOW.map(start).into())
});

/// Waits for the check in [`SLOW`] with this name.
fn slow(name: &str) {
    let outcome = STARTED.lock().unwrap().remove(name).unwrap();
    outcome.recv().unwrap().unwrap();
}

fn program(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sched_program"));
    command.arg(name);
    command
}

/// Resources that a process has used: CPU time in clock ticks, and the number of voluntary context
/// switches of each thread.
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

/// Starts a program and waits until it has printed `idle`.
fn idle(name: &str) -> Child {
    let mut command = program(name);
    command.env("GOMAXPROCS", "4").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "idle\n");
    child
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// Reads the resources of a process every two seconds, until the process used none between two
/// reads. Returns all values read if that does not happen within `looks` reads.
fn wait_until_quiet(process: u32, looks: usize) -> Result<(), Vec<Use>> {
    let mut seen = vec![used(process)];
    while seen.len() < looks {
        std::thread::sleep(Duration::from_secs(2));
        seen.push(used(process));
        if seen[seen.len() - 2] == seen[seen.len() - 1] {
            return Ok(());
        }
    }
    Err(seen)
}

/// Checks that the process is quiet soon after it becomes idle, and again when its surplus threads
/// have ended.
fn stays_idle(name: &str) {
    let deadline = Instant::now() + wait::LIMIT;
    let (child, start) = loop {
        let (child, start) = (idle(name), Instant::now());
        std::thread::sleep(Duration::from_millis(500));
        // Surplus threads end later than this. A busy machine may need another attempt.
        match wait_until_quiet(child.id(), 5) {
            Ok(()) => break (child, start),
            Err(seen) => assert!(Instant::now() < deadline, "{name}: woken or busy: {seen:#?}"),
        }
        end(child);
    };
    std::thread::sleep(Duration::from_millis(10_500).saturating_sub(start.elapsed()));
    if let Err(seen) = wait_until_quiet(child.id(), 60) {
        panic!("{name}: woken or busy after its surplus threads have ended: {seen:#?}");
    }
    end(child);
}

// S110, S113, S115
#[test]
fn an_idle_process_uses_no_cpu_and_is_never_woken() {
    slow("an idle process");
}

// S110, S113
#[test]
fn a_process_whose_run_has_returned_is_never_woken() {
    slow("a process whose run has returned");
}

fn numbers(text: &str, label: &str) -> Vec<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no `{label}` in: {text}"));
    line.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn stdout(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}: {:?}: {}", output.status, children::stderr(&output));
    text
}

// S46, S47, S51
#[test]
fn surplus_threads_end_after_the_idle_time_and_goroutines_still_run() {
    slow("surplus threads");
}

fn surplus_threads_end() {
    let mut command = program("surplus");
    command.env("GOMAXPROCS", "2");
    let text = stdout(command);
    let most = numbers(&text, "at most ");
    assert!(most[0] >= 40, "each tied goroutine has a thread: {text}");
    let last = numbers(&text, "at last ");
    assert!(last[0] >= 2 && last[0] <= 5, "at least procs, and few: {text}");
    assert!(last[1] <= 8, "threads of the process: {text}");
    assert!(text.ends_with("works\n"), "{text}");
}

// S125
#[test]
fn threads_of_finished_blocking_calls_end_after_the_idle_time() {
    slow("threads of those that came back");
}

fn threads_of_calls_end() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blocking_program"));
    command.args(["thousand", "pipe", "marked", "gone"]).env("GOMAXPROCS", "2");
    let text = stdout(command);
    assert!(text.ends_with("gone\nall back\n"), "{text}");
}

// A.16.6
#[test]
fn a_deadlock_is_reported_when_the_last_ordinary_thread_ends() {
    slow("the last ordinary thread");
}

/// The runtime is not notified when a thread ends: the last M checks for a deadlock again after it
/// has slept for 10 s.
fn a_deadlock_is_found_later() {
    let output = program("a thread ends").output().unwrap();
    let text = children::stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{:?}: {text}", output.status);
    let first = "fatal error: all goroutines are asleep - deadlock!";
    assert_eq!(text.lines().next(), Some(first), "{text}");
    assert_eq!(text.matches("fatal error").count(), 1, "{text}");
    assert!(text.lines().any(|line| line == "goroutine 1 [park]:"), "{text}");
}

// S26, S50, S58, S186
#[test]
fn a_hundred_thousand_parked_goroutines_need_few_threads() {
    // A busy machine stops threads in the kernel, for example in a page fault, and each P continues
    // with another thread.
    wait::retry_until_eq(true, || {
        let mut command = program("many");
        // Guards by mprotect take two mappings per stack, and a process may have 65530 mappings.
        command.env("GOMAXPROCS", "2").env_remove("GOSCHED_GUARD");
        let text = stdout(command);
        assert!(text.contains("goroutines 100001\n"), "{text}");
        assert!(text.ends_with("all ended\n"), "{text}");
        let most = 8 + numbers(&text, "stopped ")[0].min(56);
        numbers(&text, "threads ").iter().all(|&threads| threads <= most)
    });
}

// S41, S61
#[test]
fn refused_threads_are_reported_once_and_the_program_runs_without_them() {
    // SAFETY: geteuid has no precondition.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can become a user without other processes");
        return;
    }
    let output = program("no threads").env("GOMAXPROCS", "8").output().unwrap();
    let text = children::stderr(&output);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "total 1000\n");
    // Two kinds of threads are refused. Each refusal is reported once.
    for kind in ["the system refuses a thread (", "the system refuses a thread for sysmon ("] {
        assert_eq!(text.matches(kind).count(), 1, "said once: {text}");
    }
}

#[test]
fn locked_goroutines_finish_if_no_more_threads_can_be_created() {
    let program = env!("CARGO_BIN_EXE_blocking_program");
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
fn free_memory_is_returned_to_the_system_when_the_process_is_idle() {
    slow("free memory");
}

fn free_memory_goes_back() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_alloc_program"));
    let mut child =
        command.arg("idle").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(numbers(&line, "idle ")[0] > 20 << 20, "much is still there: {line}");
    wait::until("free memory is back", || resident(child.id()) < 20 << 20);
    drop(child.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "works");
    assert!(child.wait().unwrap().success());
}
