//! Compares the texts of gosched with those of Go in the same run: dumps, profiles, deadlock
//! reports, SIGQUIT reports, schedtrace. The allowed shapes of a line are learned from Go's output
//! (`gosched_tests::go_formats`). The Go programs are in `tests/go`, ours in
//! `src/bin/observe_program`.

use gosched_tests::children;
use gosched_tests::dumps;
use gosched_tests::go_formats::{DumpLayout, LineKind, Pattern};
use gosched_tests::golang::{GoProgram, clean_command};
use gosched_tests::trace_lines::{Line, Trace};
use gosched_tests::wait;
use gosched_tests::watched_child::{ChildOutput, WatchedChild};
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

fn ours(arguments: &[&str]) -> Command {
    clean_command(Path::new(env!("CARGO_BIN_EXE_observe_program")), arguments)
}

fn output(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Returns the output of a program, which must succeed.
fn printed(command: Command) -> String {
    let what = format!("{command:?}");
    let output = output(command);
    assert!(output.status.success(), "{what}: {}", children::stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the standard error of a program, which must exit with status 2.
fn final_report(mut command: Command) -> String {
    wait::retry(|| {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = children::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
        dumps::ensure_complete(&text).map(|()| text)
    })
}

/// Returns the goroutine blocks of a dump.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").filter(|block| block.starts_with("goroutine "))
}

/// Returns the header of the goroutine that runs `function`, from its bracket on.
fn header<'a>(text: &'a str, function: &str) -> &'a str {
    let of = |block: &&str| {
        block.lines().any(|line| {
            let name = line.split('(').next().unwrap_or_default();
            !line.starts_with("created by") && name.rsplit([':', '.']).any(|part| part == function)
        })
    };
    let block = blocks(text).find(of).unwrap_or_else(|| panic!("no {function} in {text}"));
    let header = block.lines().next().unwrap_or_default();
    header.find('[').map(|at| &header[at..]).unwrap_or_else(|| panic!("{header}"))
}

/// Pairs of functions, Go's and ours, that wait for the same reason.
const SAME: [(&str, &str); 15] = [
    ("chanReceive", "chan_receive"),
    ("chanSend", "chan_send"),
    ("nilReceive", "never_receive"),
    ("selects", "selects"),
    ("selectsNothing", "selects_nothing"),
    ("sleeps", "sleeps"),
    ("locksMutex", "locks_mutex"),
    ("locksRead", "locks_read"),
    ("locksWrite", "locks_write"),
    ("waitsCond", "waits_cond"),
    ("waitsGroup", "waits_group"),
    ("waitsIo", "waits_io"),
    ("inSyscall", "in_syscall"),
    ("locked", "locked"),
    ("labelled", "labelled"),
];

/// Headers that only gosched prints: wait reasons that Go does not have, and a goroutine name.
const OWN_HEADERS: [&str; 6] = [
    "goroutine 1 [park]:",
    "goroutine 1 [join]:",
    "goroutine 1 [semaphore]:",
    "goroutine 1 [barrier]:",
    "goroutine 1 [block_on]:",
    "goroutine 1 [chan receive] {name: Ada}:",
];

/// Returns Go's text with one block added for each header in `OWN_HEADERS`.
fn with_own_headers(go: &str) -> String {
    let mut text = go.to_owned();
    let (_, block) = go.split_once('\n').expect("a first block");
    let block = block.split("\n\n").next().unwrap_or_default();
    for header in OWN_HEADERS {
        text = format!("{header}\n{block}\n\n{text}");
    }
    text
}

#[test]
fn a_dump_has_the_layout_of_go_s() {
    for way in ["stack", "profile2"] {
        let Some(go) = GoProgram::new("states") else { return };
        let go = printed(go.command(&[way]));
        let layout = DumpLayout::of(&with_own_headers(&go));
        assert_eq!(layout.check(&go), Ok(()), "Go's own");
        let ours = printed(ours(&["states", "text"]));
        assert_eq!(layout.check(&ours), Ok(()), "{ours}");
        let first = |text: &str| text.lines().next().map(str::to_owned);
        assert_eq!(first(&go).as_deref(), Some("goroutine 1 [running]:"));
        assert_eq!(first(&ours), first(&go), "the caller is first");
        assert_eq!(ours.ends_with('\n'), go.ends_with('\n'));
    }
}

/// Sets `GOTRACEBACK` to `level`.
fn at(level: &str, mut command: Command) -> Command {
    command.env("GOTRACEBACK", level);
    command
}

/// Returns Go's text of a fatal signal with one block added for each header in `OWN_HEADERS`, to
/// which addresses are added.
fn with_own_addresses(go: &str) -> String {
    let lines = with_own_headers(go);
    let lines = lines.lines().map(|line| {
        if OWN_HEADERS.contains(&line) {
            line.replacen(" [", " gp=0x1 m=nil [", 1)
        } else {
            line.to_owned()
        }
    });
    lines.map(|line| line + "\n").collect()
}

#[test]
fn a_dump_with_addresses_has_the_layout_of_go_s() {
    let Some(states) = GoProgram::new("states") else { return };
    let Some(ends) = GoProgram::new("ends") else { return };
    // Go prints addresses only in the report of a process that ends.
    let (_, go) = quit(states.command(&["quit"]));
    let (go, _) = dump_and_registers(&go.err);
    let running = final_report(at("system", ends.command(&["panic in goroutine"])));
    let (_, running) = running.split_once("\n\n").unwrap();
    let layout = DumpLayout::of(&format!("{}\n{running}", with_own_addresses(go)));
    for level in ["system", "crash", "2"] {
        let text = printed(at(level, ours(&["states", "text"])));
        assert_eq!(layout.check(&text), Ok(()), "{level}: {text}");
        let first = Pattern::of(running.lines().next().unwrap());
        assert!(first.matches(text.lines().next().unwrap()), "no {first}: {text}");
    }
    let plain = printed(ours(&["states", "text"]));
    assert_ne!(layout.check(&plain), Ok(()), "it has no addresses");
}

/// A deadlock report has addresses at the same levels as Go's.
#[test]
fn a_deadlock_report_has_addresses_where_go_s_has_them() {
    let Some(program) = GoProgram::new("ends") else { return };
    for level in ["all", "system"] {
        let go = final_report(at(level, program.command(&["receive"])));
        let text = final_report(at(level, ours(&["end", "receive"])));
        let header = |text: &str, id: &str| {
            let block = blocks(text).find(|block| block.starts_with(id)).map(str::to_owned);
            let block = block.unwrap_or_else(|| panic!("no {id}: {text}"));
            Pattern::of(block.lines().next().unwrap()).to_string()
        };
        assert_eq!(header(&text, "goroutine 1 "), header(&go, "goroutine 1 "), "{level}");
        let addresses = |text: &str| text.lines().any(|line| line.contains(" fp=0x"));
        assert_eq!(addresses(&text), addresses(&go), "{level}: {text}");
    }
}

#[test]
fn wait_reasons_are_named_as_in_go() {
    let Some(go) = GoProgram::new("states") else { return };
    let go = printed(go.command(&["stack"]));
    let text = printed(ours(&["states", "text"]));
    for (theirs, our) in SAME {
        assert_eq!(header(&text, our), header(&go, theirs), "{our}");
    }
}

#[test]
fn tracebacklabels_switches_labels_off_as_in_go() {
    let Some(go) = GoProgram::new("states") else { return };
    for value in ["0", "1"] {
        let setting = format!("tracebacklabels={value}");
        let shows = |mut command: Command| {
            let text = printed({
                command.env("GODEBUG", &setting);
                command
            });
            text.contains("] {kind: plain, \"with space\": \"a b\"}:\n")
        };
        let (go, ours) = (shows(go.command(&["stack"])), shows(ours(&["states", "text"])));
        assert_eq!((go, ours), (value == "1", value == "1"), "{setting}");
    }
}

#[test]
fn a_folded_dump_has_the_layout_of_go_s() {
    let Some(go) = GoProgram::new("states") else { return };
    // Go's program does not detect when all of its goroutines wait.
    let go = wait::retry(|| {
        let text = printed(go.command(&["profile1"]));
        let is_whole = dumps::parse_folded(&text).is_ok_and(|(_, stacks)| stacks[0].count == 5);
        if is_whole { Ok(text) } else { Err(text) }
    });
    let ours = printed(ours(&["states", "folded"]));
    let patterns: Vec<Pattern> = go.lines().map(Pattern::of).collect();
    // Labels differ between programs; `parse_folded` below checks their syntax.
    let is_labels = |line: &str| line.starts_with("# labels: {\"") && line.ends_with("\"}");
    assert!(go.lines().any(is_labels), "{go}");
    let fits = |line: &str| patterns.iter().any(|pattern| pattern.matches(line)) || is_labels(line);
    // Here, C functions and our assembly have no source information. In Go all functions have it.
    let sourceless = |line: &str| !line.contains("::") || line.contains("\tgosched_fiber::arch::");
    let foreign = |line: &str| line.starts_with("#\t0x") && sourceless(line);
    for line in ours.lines() {
        assert!(fits(line) || foreign(line), "{line:?} in {ours}");
    }
    assert!(patterns[0].matches(ours.lines().next().unwrap()), "{ours}");
    assert_eq!(ours.ends_with("\n\n"), go.ends_with("\n\n"), "the last stack ends as the others");

    let (_, theirs) = dumps::parse_folded(&go).unwrap_or_else(|why| panic!("{why}\n{go}"));
    let (total, stacks) = dumps::parse_folded(&ours).unwrap_or_else(|why| panic!("{why}\n{ours}"));
    assert_eq!(total, stacks.iter().map(|stack| stack.count).sum::<usize>(), "{ours}");
    let labels = |stacks: &[dumps::Stack]| stacks.iter().find_map(|stack| stack.labels.clone());
    let labelled = stacks.iter().find(|stack| stack.has("labelled")).unwrap();
    assert_eq!(labelled.labels, labels(&theirs), "{ours}");
    let receives = stacks.iter().find(|stack| stack.has("chan_receive")).unwrap();
    assert_eq!((receives.count, stacks[0].count), (5, 5), "{ours}");
    assert_eq!(theirs[0].count, 5, "{go}");
}

/// Deadlocks that both programs can cause, with the function in which main waits: Go's and ours.
const DEADLOCKS: [(&str, &str, &str); 11] = [
    ("receive", "deadlockReceive", "deadlock_receive"),
    ("send", "deadlockSend", "deadlock_send"),
    ("nil receive", "deadlockNilReceive", "deadlock_nil_receive"),
    ("select", "deadlockSelect", "deadlock_select"),
    ("select nothing", "deadlockSelectNothing", "deadlock_select_nothing"),
    ("mutex", "deadlockMutex", "deadlock_mutex"),
    ("read", "deadlockRead", "deadlock_read"),
    ("write", "deadlockWrite", "deadlock_write"),
    ("group", "deadlockGroup", "deadlock_group"),
    ("cond", "deadlockCond", "deadlock_cond"),
    ("locked", "deadlockLocked", "deadlock_locked"),
];

#[test]
fn a_deadlock_is_reported_as_in_go() {
    let Some(program) = GoProgram::new("ends") else { return };
    let Some(states) = GoProgram::new("states") else { return };
    // The dump of a deadlock does not contain all shapes of frames.
    let states = printed(states.command(&["stack"]));
    for (end, theirs, our) in DEADLOCKS {
        let go = final_report(program.command(&[end]));
        let text = final_report(ours(&["end", end]));
        assert_eq!(header(&text, our), header(&go, theirs), "{end}");
        assert_eq!(header(&text, "bystander"), header(&go, "bystander"), "{end}");
        let (message, go_dump) = go.split_once("\n\n").unwrap();
        let (our_message, dump) = text.split_once("\n\n").unwrap_or_else(|| panic!("{text}"));
        assert_eq!(our_message, message, "{end}");
        let layout = DumpLayout::of(&format!("{go_dump}\n{states}"));
        assert_eq!(layout.check(dump), Ok(()), "{end}: {text}");
        assert!(dump.starts_with("goroutine 1 ["), "main is first: {text}");
    }
}

#[test]
fn goexit_of_main_ends_in_the_same_deadlock_report_as_in_go() {
    let Some(program) = GoProgram::new("ends") else { return };
    let go = final_report(program.command(&["goexit"]));
    let text = final_report(ours(&["end", "goexit"]));
    assert_eq!(text.lines().next(), go.lines().next());
    assert_eq!(header(&text, "bystander"), header(&go, "bystander"));
    assert_eq!(blocks(&text).count(), blocks(&go).count(), "main is not there any more: {text}");
}

#[test]
fn gotraceback_shows_the_same_goroutines_as_in_go() {
    let Some(program) = GoProgram::new("ends") else { return };
    for level in ["", "none", "0", "single", "all", "1", "system", "2"] {
        let with = |mut command: Command| {
            command.env("GOTRACEBACK", level);
            final_report(command)
        };
        let (go, text) = (with(program.command(&["receive"])), with(ours(&["end", "receive"])));
        assert_eq!(text.lines().next(), go.lines().next(), "{level}: {text}");
        let shows = |text: &str, name: &str| text.contains(name);
        for (theirs, our) in
            [("deadlockReceive(", "deadlock_receive("), ("bystander(", "bystander(")]
        {
            assert_eq!(shows(&text, our), shows(&go, theirs), "{level}: {our}: {text}");
        }
        if level == "none" {
            assert_eq!(text, go, "nothing but the message");
        }
    }
}

/// The panic is not in main: a panic in main ends a Rust program with Rust's own status and without
/// a dump of other goroutines.
#[test]
fn a_fatal_panic_shows_the_other_goroutines_when_go_does() {
    let Some(program) = GoProgram::new("ends") else { return };
    for level in ["", "none", "single", "all"] {
        let with = |mut command: Command| {
            command.env("GOTRACEBACK", level);
            final_report(command)
        };
        let end = "panic in goroutine";
        let (go, text) = (with(program.command(&[end])), with(ours(&["end", end])));
        let shows = |text: &str| blocks(text).any(|block| block.contains("bystander("));
        assert_eq!(shows(&text), shows(&go), "{level}: {text}");
        assert!(text.contains("as asked"), "{level}: {text}");
    }
}

#[test]
fn a_stack_overflow_is_reported_as_in_go() {
    let Some(program) = GoProgram::new("ends") else { return };
    let go = final_report(program.command(&["overflow"]));
    let text = final_report(ours(&["end", "overflow"]));
    let fatal = |text: &str| text.lines().find(|line| line.starts_with("fatal")).map(str::to_owned);
    assert_eq!(fatal(&text), fatal(&go), "{text}");
    let elided = go.lines().find(|line| line.ends_with("elided...")).unwrap();
    let elided = Pattern::of(elided);
    assert!(text.lines().any(|line| elided.matches(line)), "no {elided} in {text}");
    assert!(header(&go, "overflows").starts_with("[running]"), "{go}");
    assert!(header(&text, "overflows").starts_with("[running]"), "{text}");
    // The goroutine that overflowed comes first, then all others.
    assert!(blocks(&go).next().unwrap().contains("overflows("), "{go}");
    assert!(blocks(&text).next().unwrap().contains("overflows("), "{text}");
    assert_eq!(header(&text, "bystander"), header(&go, "bystander"), "{text}");
}

/// Sends SIGQUIT to a program when it has printed `ready`.
fn quit(command: Command) -> (ExitStatus, ChildOutput) {
    let mut program = WatchedChild::start(command);
    program.wait_for("ready", |said| said.out.contains("ready\n"));
    program.signal(libc::SIGQUIT);
    program.wait_for_exit()
}

/// Splits the report of a SIGQUIT into the goroutines and, after a blank line, the registers.
fn dump_and_registers(text: &str) -> (&str, &str) {
    let (_, text) = text.split_once("\n\n").unwrap_or_else(|| panic!("{text}"));
    text.rsplit_once("\n\n").unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn sigquit_ends_a_program_as_in_go() {
    let Some(program) = GoProgram::new("states") else { return };
    // Go shows all goroutines and the registers at every level.
    for level in ["", "none", "single", "all", "system"] {
        // Main may run for a moment after it has printed `ready`, and a running goroutine may not
        // answer the dump.
        wait::retry(|| sigquit_ends_as_go_s(level, &program));
    }
}

fn sigquit_ends_as_go_s(level: &str, program: &GoProgram) -> Result<(), String> {
    let (status, go) = quit(at(level, program.command(&["quit"])));
    let (our_status, ours) = quit(at(level, ours(&["quit", "waits"])));
    dumps::ensure_complete(&ours.err)?;
    assert_eq!(our_status.code(), status.code(), "{level}: {}", ours.err);
    assert_eq!(ours.err.lines().next(), go.err.lines().next(), "{level}: {}", ours.err);
    let second = Pattern::of(go.err.lines().nth(1).unwrap());
    assert!(second.matches(ours.err.lines().nth(1).unwrap()), "{level}: {}", ours.err);
    let (go_dump, go_registers) = dump_and_registers(&go.err);
    let (dump, registers) = dump_and_registers(&ours.err);
    DumpLayout::of(go_dump).check(dump).map_err(|why| format!("{level}: {why}: {dump}"))?;
    // The names of the registers must be equal; their values differ.
    let names = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("0x").next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(registers), names(go_registers), "{level}");
    assert_eq!(registers.matches("0x").count(), registers.lines().count(), "{registers}");
    let waiting = |text: &str, function| header(text, function).to_owned();
    assert_eq!(waiting(&ours.err, "bystander"), waiting(&go.err, "chanReceive"), "{level}");
    Ok(())
}

#[test]
fn gotraceback_crash_ends_with_the_same_signal_as_in_go() {
    use std::os::unix::process::ExitStatusExt;
    let Some(program) = GoProgram::new("ends") else { return };
    let crash = |mut command: Command| {
        let output = output({
            command.env("GOTRACEBACK", "crash");
            command
        });
        (output.status.signal(), children::stderr(&output))
    };
    let (go, _) = crash(program.command(&["receive"]));
    let (signal, text) = crash(ours(&["end", "receive"]));
    assert_eq!(signal, go, "{text}");
    assert!(text.contains("bystander("), "{text}");
}

/// Runs a program until it has traced more than `lines` `SCHED` lines. Returns its standard error
/// without the last trace, and its standard output.
fn traced(mut command: Command, setting: &str, lines: usize) -> (String, String) {
    command.env("GODEBUG", setting);
    let mut program = WatchedChild::start(command);
    let count =
        |said: &ChildOutput| said.err.lines().filter(|line| line.starts_with("SCHED")).count();
    program.wait_for("trace", |said| count(said) > lines);
    program.close_stdin();
    let (status, said) = program.wait_for_exit();
    assert!(status.success(), "{status:?}: {}", said.err);
    // The end of the process may have cut the last trace short.
    let last = said.err.rfind("SCHED").unwrap_or(0);
    (said.err[..last].to_owned(), said.out)
}

fn check(trace: &Trace, text: &str) -> Result<Vec<Line>, String> {
    text.lines().map(|line| trace.check(line).map_err(|why| format!("{why}\n{text}"))).collect()
}

/// Returns an error with the text unless the condition holds.
fn ensure(holds: bool, what: &str, text: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}: {text}")) }
}

// A trace depends on the progress of the goroutines, and a short trace of Go may lack some kinds of
// values. Therefore the tests below retry.

#[test]
fn schedtrace_prints_go_s_line() {
    let Some(program) = GoProgram::new("trace") else { return };
    wait::retry(|| {
        let (go, _) = traced(program.command(&[]), "schedtrace=50", 3);
        let trace = Trace::of(&go);
        ensure(trace.sorts() == ["SCHED"], "one kind of line", &go)?;
        check(&trace, &go)?;
        let (text, _) = traced(ours(&["trace"]), "schedtrace=50", 3);
        let lines = check(&trace, &text)?;
        ensure(lines.is_sorted_by(|a, b| a.number < b.number), "time goes on", &text)?;
        for line in &lines {
            ensure(line.get("gomaxprocs") == Some("2"), "two Ps", &text)?;
            for list in ["", "schedticks"] {
                let values = line.get(list).map(|list| list.split(' ').count());
                ensure(values == Some(2 + 2), "one of each P, and brackets", &text)?;
            }
        }
        Ok(())
    });
}

/// Returns whether the parts of a detailed trace are in Go's order.
fn in_order(lines: &[Line]) -> bool {
    let rank = |line: &Line| ["SCHED", "  P", "  M", "  G"].iter().position(|of| *of == line.kind);
    lines.is_sorted_by_key(rank)
}

/// Checks a detailed trace for the goroutines that both programs have.
fn check_detail(lines: &[Line], text: &str) -> Result<(), String> {
    ensure(in_order(lines), "the order of the parts", text)?;
    let of = |of: &str| lines.iter().filter(move |line| line.kind == of).collect::<Vec<_>>();
    let (ps, ms, gs) = (of("  P"), of("  M"), of("  G"));
    ensure(ps.len() == 2, "two Ps", text)?;
    let has = |state: &str| gs.iter().any(|g| g.get("status") == Some(state));
    for state in ["4(chan receive)", "4(select (no cases))", "4(sleep)"] {
        ensure(has(state), state, text)?;
    }
    let computing = gs.iter().filter(|g| g.get("status").is_some_and(|s| "12".contains(&s[..1])));
    ensure(computing.count() >= 4, "those that compute run, or could", text)?;
    let locked = gs.iter().find(|g| g.get("lockedm") != Some("nil"));
    let locked = locked.ok_or_else(|| format!("no G is locked: {text}"))?;
    let m = ms.iter().find(|m| m.get("lockedg") == Some(&locked.number.to_string()));
    let m = m.ok_or_else(|| format!("no M is locked to {}: {text}", locked.number))?;
    ensure(locked.get("lockedm") == Some(m.number.to_string().as_str()), "locked to it", text)
}

/// Splits a text into its traces.
fn traces(text: &str) -> Vec<String> {
    text.split("SCHED").skip(1).map(|rest| format!("SCHED{rest}")).collect()
}

#[test]
fn scheddetail_prints_go_s_lines() {
    let Some(program) = GoProgram::new("trace") else { return };
    wait::retry(|| {
        let (go, _) = traced(program.command(&[]), "schedtrace=50,scheddetail=1", 4);
        let trace = Trace::of(&go);
        ensure(trace.sorts() == ["  G", "  M", "  P", "SCHED"], "four kinds of lines", &go)?;
        // Go prints its first trace before main starts.
        let last = |text: &str| traces(text).pop().unwrap_or_default();
        check_detail(&check(&trace, &last(&go))?, &go)?;
        let (text, _) = traced(ours(&["trace"]), "schedtrace=50,scheddetail=1", 4);
        for text in traces(&text) {
            ensure(in_order(&check(&trace, &text)?), "the order of the parts", &text)?;
        }
        check_detail(&check(&trace, &last(&text))?, &text)
    });
}

#[test]
fn sched_trace_returns_go_s_line_and_go_s_details() {
    let Some(program) = GoProgram::new("trace") else { return };
    wait::retry(|| {
        let (plain, _) = traced(program.command(&[]), "schedtrace=50", 2);
        let (detail, _) = traced(program.command(&[]), "schedtrace=50,scheddetail=1", 4);
        let (plain, detail) = (Trace::of(&plain), Trace::of(&detail));
        let (_, text) = traced(ours(&["trace"]), "schedtrace=50", 2);
        let (first, rest) = text.split_once('\n').ok_or_else(|| text.clone())?;
        let mut lines = check(&plain, first)?;
        lines.extend(check(&detail, rest)?);
        check_detail(&lines, &text)
    });
}

#[test]
fn go_s_own_dump_contains_every_kind_of_line() {
    let Some(go) = GoProgram::new("states") else { return };
    let layout = DumpLayout::of(&printed(go.command(&["stack"])));
    for kind in [
        LineKind::Header,
        LineKind::Frame,
        LineKind::Place,
        LineKind::Creator,
        LineKind::CreatorPlace,
    ] {
        assert!(layout.patterns(kind).next().is_some(), "{kind:?}");
    }
    let frames: Vec<String> = layout.patterns(LineKind::Frame).map(Pattern::to_string).collect();
    assert!(frames.iter().any(|frame| frame.ends_with(r"\(\.\.\.\)")), "{frames:?}");
}
