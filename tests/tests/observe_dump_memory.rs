//! Dumping many goroutines takes little memory: the dump keeps no text that it has written, and
//! keeps equal stacks once.

use gosched_tests::children;
use gosched_tests::golang::clean_command;
use std::path::Path;

const MANY: usize = if cfg!(debug_assertions) { 15_000 } else { 100_000 };
/// Upper bound of a dump's memory, in KiB: 16 bytes per goroutine for its address and id, plus 3
/// MiB.
const MAX_WORST_KIB: usize = ((16 * MANY) >> 10) + 3072;

/// Cost of one form of dump, as printed by `observe_program million`.
#[derive(Debug)]
struct DumpCost {
    form: String,
    /// Growth of the process's peak memory, in KiB.
    worst: usize,
    bytes: Option<usize>,
}

fn parse_cost(line: &str) -> Option<DumpCost> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |word: &str| {
        let at = words.iter().position(|found| *found == word)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    Some(DumpCost {
        form: words.first()?.to_string(),
        worst: before("KiB")?,
        bytes: before("bytes"),
    })
}

#[test]
fn dumping_many_goroutines_takes_little_memory() {
    // The first dump reads the debug information and keeps it in memory.
    let forms = "text,text,folded,walk,json";
    let arguments = ["million", &MANY.to_string(), forms];
    let program = Path::new(env!("CARGO_BIN_EXE_observe_program"));
    let output = clean_command(program, &arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?}: {}", output.status, children::stderr(&output));
    let all: Vec<DumpCost> = text.lines().filter_map(parse_cost).collect();
    let [_, dumped, folded, walked, json] = all.as_slice() else { panic!("{text}") };
    assert_eq!(
        [&dumped.form, &folded.form, &walked.form, &json.form],
        ["text", "folded", "walk", "json"]
    );
    assert!(dumped.bytes.is_some_and(|bytes| bytes >> 10 > 2 * MAX_WORST_KIB), "{text}");
    for took in [dumped, folded, walked, json] {
        assert!(took.worst <= MAX_WORST_KIB, "{took:?} of {MAX_WORST_KIB}: {text}");
    }
}
