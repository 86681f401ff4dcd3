//! The contents of a dump: every goroutine once, why it waits, its function and line, and where it
//! was created; and that taking a dump does not disturb the goroutines. Each case is a program: see
//! `src/bin/observe_program`.
//!
//! `benches/limits` measures how rarely a dump ends a system call early, how often running or
//! blocked goroutines are shown with all their frames, and how long dumps take. With
//! `GOSCHED_STRESS` the tests that repeat something repeat it more often.

use gosched_tests::children;
use gosched_tests::dumps::{self, DumpedGoroutine};
use gosched_tests::golang::clean_command;
use gosched_tests::json::Json;
use gosched_tests::shared_library;
use gosched_tests::wait;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Separator between two texts that a program prints.
const BORDER: &str = "\n=====\n";
const STATES: &str = include_str!("../src/bin/observe_program/states.rs");

/// Returns the output of a program that runs with `procs` Ps.
fn printed(arguments: &[&str], procs: &str) -> String {
    let mut command = clean_command(Path::new(env!("CARGO_BIN_EXE_observe_program")), arguments);
    let output = command.env("GOMAXPROCS", procs).output().unwrap();
    let text = children::stderr(&output);
    assert!(output.status.success(), "{arguments:?}: {:?}: {text}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the number of repetitions: `full` if `GOSCHED_STRESS` is set, else `quick`.
fn repetitions(quick: usize, full: usize) -> String {
    let is_full = std::env::var_os("GOSCHED_STRESS").is_some();
    (if is_full { full } else { quick }).to_string()
}

fn parsed(text: &str) -> Vec<DumpedGoroutine> {
    dumps::parse(text).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// Returns the only goroutine that has a frame of function `name`.
fn goroutine_in<'a>(blocks: &'a [DumpedGoroutine], name: &str) -> &'a DumpedGoroutine {
    let found: Vec<&DumpedGoroutine> =
        blocks.iter().filter(|block| block.frame(name).is_some()).collect();
    let [block] = found.as_slice() else { panic!("{} in {name}: {found:#?}", found.len()) };
    block
}

/// Returns the number of the line that ends with `// HERE name`.
fn line(source: &str, name: &str) -> u64 {
    let mark = format!("// HERE {name}");
    let found = source.lines().zip(1..).find(|(line, _)| line.ends_with(&mark));
    found.unwrap_or_else(|| panic!("no {mark}")).1
}

/// Functions of the program, each with the wait reason of the goroutine that runs it.
const WAITS: [(&str, &str); 21] = [
    ("chan_receive", "chan receive"),
    ("chan_send", "chan send"),
    ("never_receive", "chan receive (nil chan)"),
    ("selects", "select"),
    ("selects_nothing", "select (no cases)"),
    ("sleeps", "sleep"),
    ("locks_mutex", "sync.Mutex.Lock"),
    ("locks_read", "sync.RWMutex.RLock"),
    ("locks_write", "sync.RWMutex.Lock"),
    ("waits_cond", "sync.Cond.Wait"),
    ("waits_group", "sync.WaitGroup.Wait"),
    ("waits_io", "IO wait"),
    ("in_syscall", "syscall"),
    ("locked", "chan receive"),
    ("labelled", "chan receive"),
    ("named", "chan receive"),
    ("parks", "park"),
    ("joins", "join"),
    ("acquires", "semaphore"),
    ("meets", "barrier"),
    ("blocks_on", "block_on"),
];

/// Returns a dump of goroutines in every state, taken once for several tests, and how long it took.
fn states() -> (&'static str, Duration) {
    static SHOWN: OnceLock<(String, Duration)> = OnceLock::new();
    let (text, took) = SHOWN.get_or_init(|| {
        let start = Instant::now();
        let text = printed(&["states", "text"], "2");
        (text, start.elapsed())
    });
    (text, *took)
}

/// A dump shows the wait time of goroutines that have waited for at least a minute.
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_dump_shows_why_and_where_each_goroutine_waits() {
    let (text, took) = states();
    let blocks = parsed(text);
    assert_eq!(blocks.len(), WAITS.len() + 1, "and main\n{text}");
    for (name, state) in WAITS {
        let block = goroutine_in(&blocks, name);
        assert_eq!(block.state, state, "{name}");
        assert!(block.minutes.is_none() || took >= MINUTE, "{name}: {:?}", block.minutes);
        assert_eq!(block.locked, name == "locked", "{name}");
        let place = block.frame(name).and_then(|frame| frame.place.as_ref());
        let (file, at) = place.unwrap_or_else(|| panic!("{name} has no place\n{text}"));
        assert!(file.ends_with("observe_program/states.rs"), "{name}: {file}");
        assert_eq!(*at, line(STATES, name), "{name}\n{text}");
    }
}

#[test]
fn a_dump_lists_the_caller_first_and_then_all_goroutines_by_id() {
    let (text, _) = states();
    let blocks = parsed(text);
    assert_eq!((blocks[0].id, blocks[0].state.as_str()), (1, "running"), "{text}");
    let shows = blocks[0].frame("shows").unwrap_or_else(|| panic!("{text}"));
    let (file, at) = shows.place.as_ref().unwrap();
    assert!(file.ends_with("states.rs"), "{file}");
    assert_eq!(*at, line(STATES, "shows"), "{text}");
    assert_eq!(blocks[0].creator, None, "nobody started main");
    assert!(blocks[1..].is_sorted_by(|a, b| a.id < b.id), "{text}");
    let order = |name: &str| goroutine_in(&blocks, name).id;
    assert!(order("chan_receive") < order("blocks_on"), "ids are as they were started");
}

#[test]
fn a_dump_shows_names_labels_parents_and_creation_sites() {
    let (text, _) = states();
    let blocks = parsed(text);
    let labelled = goroutine_in(&blocks, "labelled");
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(labelled.labels, [label("kind", "plain"), label("with space", "a b")], "{text}");
    assert_eq!(goroutine_in(&blocks, "named").labels, [label("name", "Ada")], "{text}");
    assert_eq!(goroutine_in(&blocks, "sleeps").labels, [], "{text}");
    let (parked, joins) = (goroutine_in(&blocks, "parks"), goroutine_in(&blocks, "joins"));
    let creator = parked.creator.as_ref().unwrap_or_else(|| panic!("{text}"));
    assert_eq!(creator.goroutine, joins.id, "{text}");
    assert_eq!(creator.place.1, line(STATES, "parks_parent"), "{text}");
    assert_eq!(creator.function, "?", "{text}");
    for (name, _) in WAITS.iter().filter(|(name, _)| *name != "parks") {
        let creator =
            goroutine_in(&blocks, name).creator.as_ref().unwrap_or_else(|| panic!("{name}"));
        assert_eq!(creator.goroutine, 1, "{name}");
        assert!(creator.place.0.ends_with("observe_program/states.rs"), "{name}: {creator:?}");
        // The creator of a closure is the function that contains it. The creator of a plain
        // function is not known, since any function may start it.
        let closures = ["locks_mutex", "locks_read", "locks_write", "waits_group", "in_syscall"];
        let known = closures.contains(name).then_some("observe_program::states::start");
        assert_eq!(creator.function, known.unwrap_or("?"), "{name}");
    }
    let first = goroutine_in(&blocks, "chan_receive").creator.as_ref().unwrap();
    assert_eq!(first.place.1, line(STATES, "start"), "{text}");
}

/// Returns the hexadecimal number that follows `name`.
fn hex(line: &str, name: &str) -> Option<usize> {
    let (_, rest) = line.split_once(name)?;
    usize::from_str_radix(rest.split(' ').next()?.strip_prefix("0x")?, 16).ok()
}

#[test]
fn frame_addresses_and_g_addresses_in_a_dump_are_consistent() {
    let mut command =
        clean_command(Path::new(env!("CARGO_BIN_EXE_observe_program")), &["states", "text"]);
    let output = command.env("GOTRACEBACK", "system").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(parsed(&text).len(), WAITS.len() + 1, "{text}");
    let mut records = BTreeSet::new();
    for block in text.split("\n\n") {
        let header = block.lines().next().unwrap();
        assert!(hex(header, " gp=").is_some_and(|gp| records.insert(gp)), "{header}");
        let has_m = ["[running", "[syscall"].iter().any(|state| header.contains(state));
        assert_eq!(hex(header, " mp=").is_some(), has_m, "{header}");
        assert_eq!(header.contains(" m=nil "), !has_m, "{header}");
        let mut end = 0;
        let mut frames = 0;
        let mut was_complete = false;
        for lines in block.lines().collect::<Vec<_>>().windows(2) {
            // Functions without source information have no `fp=`.
            let Some(fp) = hex(lines[1], " fp=") else {
                was_complete &= lines[1].starts_with('\t') || lines[0].starts_with('\t');
                continue;
            };
            let (sp, pc) = (hex(lines[1], " sp=").unwrap(), hex(lines[1], " pc=").unwrap());
            assert!(sp < fp && end <= sp, "{block}");
            assert!(!was_complete || end == sp, "one begins where the other ends: {block}");
            assert!(hex(lines[1], " +").is_some_and(|offset| offset < pc), "{block}");
            (end, was_complete, frames) = (fp, true, frames + 1);
        }
        assert!(frames > 5, "{block}");
    }
}

/// Removes what differs between two dumps of the same state: main, which is at another line, and
/// the minutes, which increase.
fn without_main(mut blocks: Vec<DumpedGoroutine>) -> Vec<DumpedGoroutine> {
    blocks.retain(|block| block.id != 1);
    blocks.iter_mut().for_each(|block| block.minutes = None);
    blocks
}

#[test]
fn a_streamed_dump_equals_a_returned_dump() {
    let text = printed(&["states", "to"], "2");
    let (whole, streamed) = text.split_once(BORDER).unwrap();
    let (whole, streamed) = (parsed(whole), parsed(streamed));
    assert_eq!(streamed[0].id, 1);
    assert_eq!(without_main(whole), without_main(streamed));
}

#[test]
fn a_dump_taken_inside_host_shows_all_goroutines() {
    let text = printed(&["states", "host"], "2");
    let blocks = parsed(&text);
    assert_eq!(blocks.len(), WAITS.len() + 1, "{text}");
    let main = blocks.iter().find(|block| block.id == 1).unwrap_or_else(|| panic!("{text}"));
    assert!(matches!(main.state.as_str(), "running" | "syscall"), "{text}");
    for (name, state) in WAITS {
        assert_eq!(goroutine_in(&blocks, name).state, state, "{name}");
    }
}

#[test]
fn the_json_dump_equals_the_text_dump() {
    let text = printed(&["states", "json"], "2");
    let (text, json) = text.split_once(BORDER).unwrap();
    let blocks = parsed(text);
    let json = Json::parse(json).unwrap_or_else(|why| panic!("{why}\n{json}"));
    assert_eq!(json.names(), ["goroutines"]);
    let all = json.get("goroutines").list();
    assert_eq!(all.len(), blocks.len());
    let by_id: BTreeMap<u64, &Json> =
        all.iter().map(|one| (one.get("id").number().unwrap(), one)).collect();
    for block in &blocks {
        assert_same_goroutine(
            by_id.get(&block.id).unwrap_or_else(|| panic!("no {}: {json:?}", block.id)),
            block,
        );
    }
}

/// Asserts that a goroutine of the JSON dump equals the same goroutine of the text dump.
fn assert_same_goroutine(json: &Json, block: &DumpedGoroutine) {
    assert_eq!(
        json.names(),
        [
            "created_at",
            "frames",
            "id",
            "labels",
            "locked_to_thread",
            "name",
            "parent",
            "state",
            "truncated",
            "wait_reason",
            "waiting_ns"
        ]
    );
    let state = json.get("state").text().unwrap();
    let reason = json.get("wait_reason").text();
    assert_eq!(reason.unwrap_or(state), block.state, "{json:?}");
    assert_eq!(reason.is_some(), state == "waiting", "{json:?}");
    let waiting = json.get("waiting_ns").number();
    assert!(state != "waiting" || waiting.is_some(), "{json:?}");
    assert_eq!(json.get("locked_to_thread"), &Json::Bool(block.locked));
    assert_eq!(json.get("truncated"), &Json::Bool(false));
    assert_eq!(json.get("name").text(), block.label("name"));
    let mut labels: BTreeMap<&str, &str> =
        block.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    labels.remove("name");
    let Json::Object(fields) = json.get("labels") else { panic!("{json:?}") };
    let found: BTreeMap<&str, &str> = fields
        .iter()
        .filter(|(key, _)| key.as_str() != "name")
        .map(|(key, value)| (key.as_str(), value.text().unwrap()))
        .collect();
    assert_eq!(found, labels);
    let creator = block.creator.as_ref();
    assert_eq!(json.get("parent").number(), creator.map(|creator| creator.goroutine));
    let place = creator.map(|creator| format!("{}:{}", creator.place.0, creator.place.1));
    assert_eq!(json.get("created_at").text(), place.as_deref());
    if block.id != 1 {
        assert_same_frames(json.get("frames").list(), block);
    }
}

fn assert_same_frames(json: &[Json], block: &DumpedGoroutine) {
    let functions: Vec<&str> =
        json.iter().map(|frame| frame.get("function").text().unwrap()).collect();
    let expected: Vec<&str> = block.frames.iter().map(|frame| frame.function.as_str()).collect();
    assert_eq!(functions, expected);
    for (frame, expected) in json.iter().zip(&block.frames) {
        assert_eq!(frame.names(), ["address", "file", "function", "line"]);
        let place = frame.get("file").text().zip(frame.get("line").number());
        assert_eq!(place, expected.place.as_ref().map(|(file, at)| (file.as_str(), *at)));
        let address = frame.get("address").text().unwrap();
        let digits = address.strip_prefix("0x").unwrap_or_default();
        assert!(u64::from_str_radix(digits, 16).is_ok_and(|address| address > 0), "{address}");
    }
}

#[test]
fn a_folded_dump_counts_each_goroutine_once() {
    let text = printed(&["states", "folded"], "2");
    let (total, stacks) = dumps::parse_folded(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    assert_eq!(total, WAITS.len() + 1 + 4, "{text}");
    assert_eq!(total, stacks.iter().map(|stack| stack.count).sum::<usize>(), "{text}");
    assert!(stacks.is_sorted_by(|a, b| a.count >= b.count), "most first\n{text}");
    for (name, _) in WAITS {
        let of: Vec<_> = stacks.iter().filter(|stack| stack.has(name)).collect();
        let [stack] = of.as_slice() else { panic!("{} stacks of {name}\n{text}", of.len()) };
        assert_eq!(stack.count, if name == "chan_receive" { 5 } else { 1 }, "{name}\n{text}");
        let frame = stack.frames.iter().find(|frame| frame.is_call_of(name)).unwrap();
        let (_, at) = frame.place.as_ref().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(*at, line(STATES, name), "{name}\n{text}");
        assert!(stack.addresses.len() > 1, "{name}\n{text}");
    }
}

#[test]
fn a_dump_shows_each_of_ten_thousand_goroutines_once() {
    // In a debug build a dump of 10,000 goroutines takes ten seconds.
    assert_eq!(printed(&["many", &repetitions(1_000, 10_000)], "2"), "all of them\n");
}

#[test]
fn a_dump_shows_how_many_minutes_a_goroutine_has_waited() {
    let hurry = shared_library::build("hurry", Path::new(env!("CARGO_TARGET_TMPDIR")), &[]);
    let mut command = clean_command(Path::new(env!("CARGO_BIN_EXE_observe_program")), &["minutes"]);
    let output = command.env("LD_PRELOAD", hurry).output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, children::stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (text, json) = text.split_once(BORDER).unwrap();
    let blocks = parsed(text);
    let json = Json::parse(json).unwrap_or_else(|why| panic!("{why}\n{json}"));
    for (name, state) in [("one_of_many", "chan receive"), ("reads_for_long", "syscall")] {
        let block = goroutine_in(&blocks, name);
        let minutes = block.minutes.unwrap_or_else(|| panic!("{text}"));
        let header = format!("goroutine {} [{state}, {minutes} minutes]:\n", block.id);
        assert!(text.contains(&header), "no {header}{text}");
        let all = json.get("goroutines").list();
        let same = all.iter().find(|one| one.get("id").number() == Some(block.id)).unwrap();
        let waiting = same.get("waiting_ns").number().unwrap();
        assert!((2..=waiting / 60_000_000_000).contains(&minutes), "{minutes}: {waiting}");
    }
    assert_eq!(blocks.iter().filter(|block| block.minutes.is_some()).count(), 2, "{text}");
}

#[test]
fn a_dump_shows_the_function_of_a_computing_goroutine() {
    for procs in ["1", "2", "4"] {
        let text = printed(&["spinners", &repetitions(3, 20)], procs);
        assert!(text.starts_with("states {"), "{text}");
    }
}

#[test]
fn frame_offsets_point_at_the_interrupted_instruction() {
    let text = printed(&["place"], "2");
    assert!(number(&text, "text") > 10 && number(&text, "folded") > 10, "{text}");
}

#[test]
fn a_goroutine_that_never_ran_is_shown_as_runnable_with_its_creation_site() {
    assert_eq!(printed(&["never started"], "2"), "runnable\n");
}

#[test]
fn dumps_show_goroutines_in_system_calls_and_let_the_calls_finish() {
    let text = printed(&["calls"], "2");
    for call in ["marked_read", "unmarked_read", "marked_poll", "unmarked_poll", "marked_nanosleep"]
    {
        assert!(text.contains(&format!("{call} came to its end\n")), "{call}: {text}");
    }
}

#[test]
fn a_dump_shows_a_destructor_that_blocks() {
    assert_eq!(printed(&["closing"], "2"), "seen 50\n");
}

/// The goroutines block in ten kinds of calls, two goroutines per kind. `benches/limits` measures
/// how many are shown with all their frames, and how rarely a dump ends a call early.
#[test]
fn dumps_show_all_frames_of_goroutines_that_block_their_threads_and_let_the_calls_finish() {
    for procs in ["1", "2", "4"] {
        let text = printed(&["blocked", &repetitions(5, 100)], procs);
        let kinds: Vec<&str> = text.lines().filter(|line| line.contains(" blocked ")).collect();
        assert_eq!(kinds.len(), 10, "{text}");
        for kind in kinds {
            assert!(number(kind, "whole") > 0, "{kind}");
        }
        assert!(number(&text, "calls") > 0 && number(&text, "alone") > 0, "{text}");
    }
}

/// Calls finish both while a goroutine takes dumps and while none does. `benches/limits` measures
/// how rarely a dump ends a call early.
#[test]
fn short_calls_finish_while_dumps_are_taken() {
    let text = printed(&["short sleeps", &repetitions(40, 400)], "4");
    assert!(number(&text, "calls") > 0 && number(&text, "alone") > 0, "{text}");
}

#[test]
fn a_dump_shows_the_functions_of_threads_that_block_all_signals() {
    let text = printed(&["deaf"], "2");
    assert!(text.starts_with("shown micros "), "{text}");
}

#[test]
fn a_dump_shows_how_long_an_unmarked_call_has_lasted() {
    wait::retry(|| {
        let text = printed(&["since"], "2");
        if number(&text, "excess") < 500_000 { Ok(()) } else { Err(text) }
    });
}

#[test]
fn a_deep_stack_is_shown_from_both_ends_with_the_number_of_frames_between() {
    for procs in ["1", "4"] {
        assert_eq!(printed(&["deep"], procs), "whole\n");
    }
}

#[test]
fn an_ordinary_thread_can_take_a_dump() {
    assert_eq!(printed(&["from a thread"], "2"), "from a thread\n");
}

#[test]
fn several_goroutines_and_threads_can_take_dumps_at_once() {
    for procs in ["1", "2", "4"] {
        assert_eq!(printed(&["at once", &repetitions(2, 25)], procs), "at once\n");
    }
}

/// Returns the number that follows `word`.
fn number(text: &str, word: &str) -> u64 {
    let mut words = text.split_whitespace().skip_while(|found| *found != word);
    words.nth(1).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{word}: {text}"))
}

#[test]
fn a_dump_never_confuses_two_goroutines_that_switch_to_each_other() {
    for procs in ["1", "2", "4"] {
        let looks = repetitions(25, 500);
        let text = printed(&["pair", &looks], procs);
        assert!(number(&text, "seen") > looks.parse().unwrap(), "{text}");
    }
}

#[test]
fn a_thousand_dumps_under_load_contain_no_impossible_frame() {
    let all =
        [("1", repetitions(10, 100)), ("2", repetitions(80, 1000)), ("4", repetitions(30, 300))];
    for (procs, looks) in all {
        let text = printed(&["storm", &looks], procs);
        let looks: u64 = looks.parse().unwrap();
        assert!(number(&text, "looks") >= looks, "{text}");
        assert!(number(&text, "seen") > 2 * looks, "they have frames: {text}");
        assert!(number(&text, "gone") > looks, "they were born and died meanwhile: {text}");
    }
}
