//! The scheduler's state in Go's format, line by line: `GODEBUG=schedtrace=N[,scheddetail=1]` and
//! `runtime::sched_trace`. In Go 1.27 the format is defined by `schedtrace` in `proc.go`.

use gosched::runtime::sched_trace;
use gosched::{go, park, run};
use gosched_tests::children;
use gosched_tests::wait::{LIMIT, retry_until_eq};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Common start of the first line, in the plain and in the detailed form.
const FIRST: &str = "SCHED #ms: gomaxprocs=# idleprocs=# threads=# spinningthreads=# needspinning=# \
                     idlethreads=# runqueue=#";
const PLAIN: &str = " [ * ] schedticks=[ * ]";
const DETAILED: &str = " gcwaiting=? nmidlelocked=# stopwait=# sysmonwait=?";
const P: &str = "  P#: status=# schedtick=# syscalltick=# m=% runqsize=# gfreecnt=# timerslen=#";
const M: &str = "  M#: p=% curg=% mallocing=0 throwing=0 preemptoff= locks=# dying=0 spinning=? blocked=? \
                 lockedg=%";
const G: &str = "  G#: status=#(~) m=% lockedm=%";

/// Matches the whole line against the pattern and returns the text of each placeholder, or `None`
/// if the line does not match. `#` is a number; `%` a number or `nil`; `?` `true` or `false`; `*`
/// numbers separated by a space; `~` text without parentheses.
fn matched<'a>(pattern: &str, line: &'a str) -> Option<Vec<&'a str>> {
    let mut found = Vec::new();
    let mut rest = line;
    let mut literal = "";
    for (at, c) in pattern.char_indices().chain([(pattern.len(), '#')]) {
        let end = at == pattern.len();
        if !end && !"#%?*~".contains(c) {
            let start = pattern[..at].len() - literal.len();
            literal = &pattern[start..at + c.len_utf8()];
            continue;
        }
        rest = rest.strip_prefix(literal)?;
        literal = "";
        if end {
            break;
        }
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length = match c {
            '#' => digits(rest),
            '%' if rest.starts_with("nil") => 3,
            '%' => digits(rest),
            '?' if rest.starts_with("true") => 4,
            '?' if rest.starts_with("false") => 5,
            '*' => rest.find(" ]")?,
            '~' => rest.find(')')?,
            _ => return None,
        };
        let (word, after) = rest.split_at(length);
        let right = match c {
            '*' => word.split(' ').all(|number| number.parse::<u64>().is_ok()),
            '~' => !word.contains('('),
            _ => length > 0,
        };
        if !right {
            return None;
        }
        found.push(word);
        rest = after;
    }
    rest.is_empty().then_some(found)
}

/// Returns the text of each placeholder. Panics if the line does not match.
fn gaps<'a>(pattern: &str, line: &'a str) -> Vec<&'a str> {
    matched(pattern, line).unwrap_or_else(|| panic!("{line:?} is not as {pattern:?}"))
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(' ').map(|number| number.parse().unwrap()).collect()
}

#[test]
fn the_matcher_accepts_right_lines_and_rejects_wrong_lines() {
    assert_eq!(matched("a=# [ * ] b=%", "a=12 [ 1 2 ] b=nil"), Some(vec!["12", "1 2", "nil"]));
    assert_eq!(matched("(~) ?", "(chan receive) true"), Some(vec!["chan receive", "true"]));
    assert_eq!(matched("(~)", "()"), Some(vec![""]));
    for (pattern, wrong) in [
        ("a=#", "a="),
        ("a=#", "a=1 "),
        ("a=#", " a=1"),
        ("a=#", "a=x"),
        ("a=?", "a=yes"),
        ("[ * ]", "[ 1  2 ]"),
        ("[ * ]", "[ ]"),
        ("a=%", "a=null"),
    ] {
        assert_eq!(matched(pattern, wrong), None, "{wrong}");
    }
}

/// Numbers of the Ps, Ms and goroutines in the lines after the first line.
#[derive(Debug, Default)]
struct Lines {
    ps: Vec<u64>,
    ms: Vec<u64>,
    gs: Vec<(u64, String)>,
}

/// Parses the lines after the first one. Checks that each has Go's format and that Ps, Ms and Gs
/// come in this order.
fn lines<'a>(text: impl Iterator<Item = &'a str>) -> Lines {
    let mut all = Lines::default();
    for line in text {
        let number = |gaps: &[&str]| gaps[0].parse().unwrap();
        match line.as_bytes().get(2) {
            Some(b'P') => {
                assert!(all.ms.is_empty() && all.gs.is_empty(), "Ps come first: {line}");
                let gaps = gaps(P, line);
                assert!(["0", "1", "3"].contains(&gaps[1]), "{line}");
                all.ps.push(number(&gaps));
            }
            Some(b'M') => {
                assert!(all.gs.is_empty(), "Ms come before Gs: {line}");
                all.ms.push(number(&gaps(M, line)));
            }
            _ => {
                let gaps = gaps(G, line);
                let known = ["1", "2", "3", "4", "6"].contains(&gaps[1]);
                assert!(known, "a state that Go has: {line}");
                all.gs.push((number(&gaps), format!("{}({})", gaps[1], gaps[2])));
            }
        }
    }
    all
}

fn is_multi_thread() -> bool {
    !cfg!(feature = "threads")
}

/// Checks a first line in the plain form, which has a queue length and a tick for each P.
fn check_plain(line: &str) {
    let gaps = gaps(&format!("{FIRST}{PLAIN}"), line);
    let procs: usize = gaps[1].parse().unwrap();
    assert_eq!((numbers(gaps[8]).len(), numbers(gaps[9]).len()), (procs, procs), "{line}");
}

/// Calls `sched_trace` until `wanted` returns true for the trace, and returns the trace.
fn until(wanted: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + LIMIT;
    loop {
        let text = sched_trace();
        if wanted(&text) {
            return text;
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_trace_has_a_plain_line_then_ps_ms_and_gs() {
    let waits = go(park);
    let id = waits.goroutine().id();
    let line = format!("\n  G{id}: status=4(park) m=nil lockedm=nil\n");
    let text = until(|text| text.contains(&line));
    let mut rest = text.lines();
    check_plain(rest.next().unwrap());
    let all = lines(rest);
    if is_multi_thread() {
        let used: Vec<u64> = (0..all.ps.len() as u64).collect();
        assert_eq!(all.ps, used, "{text}");
        assert!(!all.ms.is_empty() && all.ms.is_sorted_by(|a, b| a > b), "latest first: {text}");
    }
    waits.goroutine().unpark();
    waits.join().unwrap();
    // As in Go, the G of an ended goroutine stays in the list until another goroutine reuses it.
    until(|text| !text.contains(&line));
}

#[cfg(not(feature = "threads"))]
#[test]
fn a_running_goroutine_is_shown_with_its_m_and_p() {
    run(|| {
        gosched::lock_os_thread();
        let text = sched_trace();
        let id = gosched::id().unwrap();
        let own = text.lines().find(|line| line.starts_with(&format!("  G{id}: "))).unwrap();
        let gaps_of_g = gaps(G, own);
        let (m, locked) = (gaps_of_g[3], gaps_of_g[4]);
        assert!(gaps_of_g[1] == "2" && m != "nil" && m == locked, "{own}");
        let line = text.lines().find(|line| line.starts_with(&format!("  M{m}: "))).unwrap();
        let gaps_of_m = gaps(M, line);
        assert_eq!((gaps_of_m[2], gaps_of_m[6]), (&*id.to_string(), &*id.to_string()), "{line}");
        let p = format!("  P{}: status=1 ", gaps_of_m[1]);
        assert!(text.lines().any(|line| line.starts_with(&p)), "{text}");
        gosched::unlock_os_thread();
    });
}

#[cfg(not(feature = "threads"))]
#[test]
fn a_goroutine_in_a_marked_call_has_status_3() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let calls = go(move || gosched::blocking_now(|| ended.recv().is_ok()));
    let id = calls.goroutine().id();
    // The goroutine has lost its P but keeps its M.
    let call = |text: &str| {
        let g = text.lines().find(|line| line.starts_with(&format!("  G{id}: status=3(")))?;
        let m = format!("  M{}: p=nil curg={id} ", gaps(G, g)[3]);
        text.lines().any(|line| line.starts_with(&m)).then_some(())
    };
    until(|text| call(text).is_some());
    end.send(()).unwrap();
    assert!(calls.join().unwrap());
}

#[test]
fn queued_goroutines_are_counted_in_the_plain_line() {
    if !is_multi_thread() {
        return;
    }
    // If the thread is stopped in a page fault, the P runs other goroutines, and the test needs
    // another attempt.
    retry_until_eq(19, || {
        let before = gosched::runtime::set_procs(1);
        let (text, handles) = run(|| {
            gosched::runtime::no_preempt(|| {
                let handles: Vec<_> = (0..20).map(|_| go(|| ())).collect();
                (sched_trace(), handles)
            })
        });
        gosched::runtime::set_procs(before);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        let gaps = gaps(&format!("{FIRST}{PLAIN}"), text.lines().next().unwrap());
        let queued = gaps[7].parse::<u64>().unwrap() + numbers(gaps[8]).iter().sum::<u64>();
        // All but the goroutine in run_next, which Go does not count either. Goroutines of other
        // tests may add to the number.
        queued.min(19)
    });
}

/// Runs a child that prints traces until more than `wanted` lines contain `word`, then closes its
/// input so that it ends. Returns its lines.
fn printed(godebug: &str, procs: &str, word: &str, wanted: usize) -> Vec<String> {
    let mut command = children::command("until told");
    command.env("GODEBUG", godebug).env("GOMAXPROCS", procs);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut told, mut printed) = (child.stdin.take(), Vec::new());
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        printed.push(line.unwrap());
        if printed.iter().filter(|line| line.contains(word)).count() > wanted {
            told = None;
        }
    }
    drop(told);
    assert!(child.wait().unwrap().success(), "{printed:?}");
    printed
}

#[test]
fn plain_lines_have_go_s_format() {
    for procs in ["1", "3"] {
        let printed = printed("schedtrace=5", procs, "SCHED ", 5);
        assert!(printed.len() > 5);
        for line in &printed {
            check_plain(line);
            let gaps = gaps(&format!("{FIRST}{PLAIN}"), line);
            assert_eq!(gaps[1], procs);
        }
        let millis =
            |line: &String| gaps(&format!("{FIRST}{PLAIN}"), line)[0].parse::<u64>().unwrap();
        assert!(printed.is_sorted_by_key(millis), "{printed:?}");
    }
}

#[test]
fn detailed_lines_have_go_s_format() {
    let printed = printed("scheddetail=1,schedtrace=20", "2", WAITS, 4 * CHILD_WAITERS);
    let firsts: Vec<usize> =
        (0..printed.len()).filter(|&at| printed[at].starts_with("SCHED ")).collect();
    assert_eq!(firsts[0], 0, "nothing else is printed: {printed:?}");
    let mut waits = 0;
    for (at, first) in firsts.iter().enumerate() {
        gaps(&format!("{FIRST}{DETAILED}"), &printed[*first]);
        let end = firsts.get(at + 1).copied().unwrap_or(printed.len());
        let all = lines(printed[first + 1..end].iter().map(String::as_str));
        if is_multi_thread() {
            assert_eq!(all.ps, [0, 1]);
            assert!(!all.ms.is_empty());
        }
        waits += all.gs.iter().filter(|(_, state)| WAITS.ends_with(state)).count();
    }
    assert!(waits > 4 * CHILD_WAITERS && firsts.len() > 4, "{printed:?}");
}

#[test]
fn nothing_is_printed_without_a_valid_schedtrace_setting() {
    for godebug in ["scheddetail=1", "schedtrace=0", "schedtrace=x", "schedtrace=-5"] {
        let mut command = children::command("yields");
        let output = command.env("GODEBUG", godebug).output().unwrap();
        assert!(output.status.success());
        assert!(!children::stderr(&output).contains("SCHED"), "{godebug}");
    }
}

#[test]
fn a_trace_of_many_goroutines_is_complete() {
    let count = if is_multi_thread() { 20_000 } else { 200 };
    let handles: Vec<_> = (0..count).map(|_| go(park)).collect();
    let text = until(|text| text.matches(": status=4(park) m=nil").count() >= count);
    let mut rest = text.lines();
    check_plain(rest.next().unwrap());
    assert!(lines(rest).gs.len() >= count);
    for handle in handles {
        handle.goroutine().unpark();
        handle.join().unwrap();
    }
}

/// State of a goroutine that waits to receive from a channel.
const WAITS: &str = "status=4(chan receive)";

/// Number of goroutines of the child in that state.
const CHILD_WAITERS: usize = 3;

#[test]
fn child() {
    match children::scenario().as_deref() {
        Some("until told") => run(|| {
            let (send, receive) = gosched::chan::<()>(0);
            for _ in 0..CHILD_WAITERS {
                let receive = receive.clone();
                go(move || _ = receive.recv());
            }
            let end = gosched::blocking(|| std::io::stdin().read(&mut [0]));
            assert_eq!(end.unwrap(), 0);
            drop(send);
        }),
        Some("yields") => run(|| (0..1000).for_each(|_| gosched::yield_now())),
        _ => {}
    }
}
