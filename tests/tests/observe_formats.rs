//! Our texts beside Go's own of the same run: dumps, profiles, deadlocks, SIGQUIT, schedtrace. What a line
//! may look like is learned from Go's (`gosched_tests::go_formats`); `tests/go` has its programs,
//! `src/bin/observe_program` ours.

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

/// What a program printed that succeeded.
fn printed(command: Command) -> String {
    let what = format!("{command:?}");
    let output = output(command);
    assert!(output.status.success(), "{what}: {}", children::stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What a program said at its end, which has to be with status 2.
fn final_report(mut command: Command) -> String {
    wait::retry(|| {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = children::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
        dumps::ensure_complete(&text).map(|()| text)
    })
}

/// The blocks of a dump.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").filter(|block| block.starts_with("goroutine "))
}

/// The header of the goroutine that runs a function, without its number.
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

/// Functions that wait for the same: Go's, and ours.
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

/// Our words where Go has none, and the name, which Go has not.
const OWN_HEADERS: [&str; 6] = [
    "goroutine 1 [park]:",
    "goroutine 1 [join]:",
    "goroutine 1 [semaphore]:",
    "goroutine 1 [barrier]:",
    "goroutine 1 [block_on]:",
    "goroutine 1 [chan receive] {name: Ada}:",
];

/// Go's text with a header of each kind that only ours have.
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
fn a_dump_is_laid_out_as_go_s() {
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

/// With `GOTRACEBACK` at this level.
fn at(level: &str, mut command: Command) -> Command {
    command.env("GOTRACEBACK", level);
    command
}

/// Go's text of a fatal signal, with a header of each kind that only ours have.
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
fn a_dump_with_addresses_is_laid_out_as_go_s() {
    let Some(states) = GoProgram::new("states") else { return };
    let Some(ends) = GoProgram::new("ends") else { return };
    // Go shows them when the process ends.
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

/// A deadlock ends both alike: with addresses where Go's has some.
#[test]
fn a_deadlock_with_addresses_is_reported_as_go_s() {
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
fn the_same_waits_have_the_same_words() {
    let Some(go) = GoProgram::new("states") else { return };
    let go = printed(go.command(&["stack"]));
    let text = printed(ours(&["states", "text"]));
    for (theirs, our) in SAME {
        assert_eq!(header(&text, our), header(&go, theirs), "{our}");
    }
}

#[test]
fn labels_can_be_switched_off_as_go_s() {
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
fn a_folded_dump_is_laid_out_as_go_s() {
    let Some(go) = GoProgram::new("states") else { return };
    // Go's program does not know when all of its goroutines wait.
    let go = wait::retry(|| {
        let text = printed(go.command(&["profile1"]));
        let is_whole = dumps::parse_folded(&text).is_ok_and(|(_, stacks)| stacks[0].count == 5);
        if is_whole { Ok(text) } else { Err(text) }
    });
    let ours = printed(ours(&["states", "folded"]));
    let patterns: Vec<Pattern> = go.lines().map(Pattern::of).collect();
    // Labels are the program's; the parser below knows how they are written.
    let is_labels = |line: &str| line.starts_with("# labels: {\"") && line.ends_with("\"}");
    assert!(go.lines().any(is_labels), "{go}");
    let fits = |line: &str| patterns.iter().any(|pattern| pattern.matches(line)) || is_labels(line);
    // C's functions, and our assembly, have no source here; Go knows that of all.
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

/// Ends that both have, and the function in which main waits.
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
fn a_deadlock_is_reported_as_go_s() {
    let Some(program) = GoProgram::new("ends") else { return };
    let Some(states) = GoProgram::new("states") else { return };
    // One dump alone has not all shapes of frames.
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
fn main_that_exits_leaves_the_others_to_a_deadlock_as_go_s() {
    let Some(program) = GoProgram::new("ends") else { return };
    let go = final_report(program.command(&["goexit"]));
    let text = final_report(ours(&["end", "goexit"]));
    assert_eq!(text.lines().next(), go.lines().next());
    assert_eq!(header(&text, "bystander"), header(&go, "bystander"));
    assert_eq!(blocks(&text).count(), blocks(&go).count(), "main is not there any more: {text}");
}

#[test]
fn gotraceback_shows_as_much_as_go_s() {
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

/// Not main's: that ends a Rust program with its own status, and without the others.
#[test]
fn a_panic_that_ends_the_process_shows_the_others_when_go_s_does() {
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
fn a_stack_overflow_is_reported_as_go_s() {
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
    // All others are shown behind the one that overflowed.
    assert!(blocks(&go).next().unwrap().contains("overflows("), "{go}");
    assert!(blocks(&text).next().unwrap().contains("overflows("), "{text}");
    assert_eq!(header(&text, "bystander"), header(&go, "bystander"), "{text}");
}

/// Sends SIGQUIT to a program that said it is ready.
fn quit(command: Command) -> (ExitStatus, ChildOutput) {
    let mut program = WatchedChild::start(command);
    program.wait_for("ready", |said| said.out.contains("ready\n"));
    program.signal(libc::SIGQUIT);
    program.wait_for_exit()
}

/// Of what is said after SIGQUIT: the goroutines, and behind a blank line the registers.
fn dump_and_registers(text: &str) -> (&str, &str) {
    let (_, text) = text.split_once("\n\n").unwrap_or_else(|| panic!("{text}"));
    text.rsplit_once("\n\n").unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn sigquit_ends_a_program_as_go_s() {
    let Some(program) = GoProgram::new("states") else { return };
    // Go shows all of it at every level, and the registers.
    for level in ["", "none", "single", "all", "system"] {
        // Main runs a little longer than it takes to say that it is ready, and one that runs may not answer.
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
    // Their values are their own.
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
fn gotraceback_crash_ends_by_the_same_signal_as_go_s() {
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

/// What a program traced until there were so many `SCHED` lines: of them, whole ones only.
fn traced(mut command: Command, setting: &str, lines: usize) -> (String, String) {
    command.env("GODEBUG", setting);
    let mut program = WatchedChild::start(command);
    let count =
        |said: &ChildOutput| said.err.lines().filter(|line| line.starts_with("SCHED")).count();
    program.wait_for("trace", |said| count(said) > lines);
    program.close_stdin();
    let (status, said) = program.wait_for_exit();
    assert!(status.success(), "{status:?}: {}", said.err);
    // Its end may have cut the last one short.
    let last = said.err.rfind("SCHED").unwrap_or(0);
    (said.err[..last].to_owned(), said.out)
}

fn check(trace: &Trace, text: &str) -> Result<Vec<Line>, String> {
    text.lines().map(|line| trace.check(line).map_err(|why| format!("{why}\n{text}"))).collect()
}

/// An error with the text, unless the condition holds.
fn ensure(holds: bool, what: &str, text: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}: {text}")) }
}

// What a trace says depends on how far goroutines have got, and a short one of Go's may not have every kind of value. So
// the tests below try again.

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

/// The parts of a detailed trace come in this order.
fn in_order(lines: &[Line]) -> bool {
    let rank = |line: &Line| ["SCHED", "  P", "  M", "  G"].iter().position(|of| *of == line.kind);
    lines.is_sorted_by_key(rank)
}

/// What a detailed trace says of the goroutines that both programs have.
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

/// The blocks of several traces.
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
        // The first of Go's is from before main.
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
fn sched_trace_is_go_s_line_and_go_s_details() {
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
fn go_s_own_texts_have_all_parts() {
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
