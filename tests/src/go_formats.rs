//! The formats of Go's output, derived from what Go printed in this run. Our output must match
//! them.
//!
//! A [`Pattern`] is a line that Go printed, with placeholders for numbers, addresses, names and
//! paths. A [`DumpLayout`] records the patterns of each kind of line of a dump, and which kind may
//! follow which.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    /// Literal text.
    Text(String),
    /// Decimal digits.
    Number,
    /// `0x` and hexadecimal digits.
    Hex,
    /// Addresses, separated by spaces.
    HexList,
    /// Tabs that align a column.
    Tabs,
    /// The name of a function, or a path: any characters but tabs, without spaces at its ends.
    Any,
}

/// The format of a line. See the top of this file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern(Vec<Piece>);

impl Pattern {
    /// Derives the pattern from a line that Go printed in a dump or a folded dump.
    pub fn of(line: &str) -> Pattern {
        let text = |text: &str| Piece::Text(text.to_owned());
        if let Some(rest) = line.strip_prefix("#\t") {
            let mut columns = rest.split('\t').filter(|column| !column.is_empty());
            let all = [columns.next(), columns.next(), columns.next(), columns.next()];
            if let [Some(_), Some(function), Some(place), None] = all {
                let mut pieces = vec![text("#\t"), Piece::Hex, text("\t"), Piece::Any];
                pieces.extend(scan(after(function, '+')));
                pieces.push(Piece::Tabs);
                pieces.push(Piece::Any);
                pieces.extend(scan(after(place, ':')));
                return Pattern(pieces);
            }
        }
        if let Some(place) = line.strip_prefix('\t') {
            let mut pieces = vec![text("\t"), Piece::Any];
            pieces.extend(scan(after(place, ':')));
            return Pattern(pieces);
        }
        if let Some((created, parent)) = line.split_once(" in goroutine ")
            && created.starts_with("created by ")
        {
            let mut pieces = vec![text("created by "), Piece::Any, text(" in goroutine ")];
            pieces.extend(scan(parent));
            return Pattern(pieces);
        }
        if LineKind::of(line) == LineKind::Frame
            && line.ends_with(')')
            && let Some(open) = opening(line)
        {
            // Go prints the arguments of most calls, and dots for arguments it does not know.
            let arguments = &line[open..];
            let known = !matches!(arguments, "()" | "(...)");
            let end = if known { vec![text("("), Piece::Any, text(")")] } else { scan(arguments) };
            return Pattern([vec![Piece::Any], end].concat());
        }
        Pattern(scan(line))
    }

    /// Returns whether a line has this format.
    pub fn matches(&self, line: &str) -> bool {
        matches(&self.0, line)
    }
}

/// Prints the pattern as a regular expression.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => text.chars().try_for_each(|c| match c {
                '\t' => f.write_str("\\t"),
                '[' | ']' | '(' | ')' | '{' | '}' | '.' | '+' | '*' | '?' => write!(f, "\\{c}"),
                _ => write!(f, "{c}"),
            }),
            Piece::Number => f.write_str("[0-9]+"),
            Piece::Hex => f.write_str("0x[0-9a-f]+"),
            Piece::HexList => f.write_str("0x[0-9a-f]+( 0x[0-9a-f]+)*"),
            Piece::Tabs => f.write_str("\\t+"),
            Piece::Any => f.write_str("\\S([^\\t]*\\S)?"),
        })
    }
}

/// Returns the text from the last `last` on, or an empty text if there is none.
fn after(text: &str, last: char) -> &str {
    text.rfind(last).map_or("", |at| &text[at..])
}

/// Returns the index of the parenthesis that opens the frame's argument list.
fn opening(line: &str) -> Option<usize> {
    let mut depth = 0;
    line.char_indices().rev().find_map(|(at, c)| {
        depth += i32::from(c == ')') - i32::from(c == '(');
        (depth == 0).then_some(at)
    })
}

/// Turns a text into pieces with placeholders for numbers and addresses only.
fn scan(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let hex = hex_length(rest);
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (length, piece) = match (hex, digits) {
            (1.., _) => (hex, Piece::Hex),
            (_, 1..) => (digits, Piece::Number),
            _ => (first.len_utf8(), Piece::Text(first.to_string())),
        };
        match (pieces.as_mut_slice(), &piece) {
            ([.., Piece::Text(before)], Piece::Text(_)) => before.push(first),
            // A second address turns the first into a list; further addresses extend the list.
            ([.., before @ (Piece::Hex | Piece::HexList), Piece::Text(space)], Piece::Hex)
                if space == " " =>
            {
                *before = Piece::HexList;
                pieces.pop();
            }
            _ => pieces.push(piece),
        }
        rest = &rest[length..];
    }
    pieces
}

fn hex_length(text: &str) -> usize {
    let Some(digits) = text.strip_prefix("0x") else { return 0 };
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    match digits.len() - digits.trim_start_matches(is_hex).len() {
        0 => 0,
        length => length + 2,
    }
}

fn matches(pieces: &[Piece], text: &str) -> bool {
    let Some((piece, pieces)) = pieces.split_first() else { return text.is_empty() };
    let rest_matches = |length: usize| length > 0 && matches(pieces, &text[length..]);
    match piece {
        Piece::Text(same) => text.starts_with(same.as_str()) && rest_matches(same.len()),
        Piece::Number => rest_matches(prefix_length(text, |c| c.is_ascii_digit())),
        Piece::Tabs => rest_matches(prefix_length(text, |c| c == '\t')),
        Piece::Hex => rest_matches(hex_length(text)),
        Piece::HexList => {
            let mut length = hex_length(text);
            while length > 0 && text[length..].starts_with(" 0x") {
                let more = hex_length(&text[length + 1..]);
                length += if more == 0 { return false } else { more + 1 };
            }
            rest_matches(length)
        }
        Piece::Any => {
            let end = prefix_length(text, |c| c != '\t');
            let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
            ends.take_while(|length| *length <= end).any(|length| {
                let name = &text[..length];
                name.trim() == name && rest_matches(length)
            })
        }
    }
}

/// Returns the length in bytes of the prefix whose characters all fit.
fn prefix_length(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.len() - text.trim_start_matches(fits).len()
}

/// The kind of a line of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LineKind {
    /// The start or the end of the text.
    Edge,
    /// The empty line between two goroutines.
    Blank,
    /// `goroutine 7 [sleep]:`
    Header,
    /// A function.
    Frame,
    /// The file and line of a frame.
    Place,
    /// The `created by` line.
    Creator,
    /// The file and line of the `created by` line.
    CreatorPlace,
}

impl LineKind {
    fn of(line: &str) -> LineKind {
        match line {
            "" => LineKind::Blank,
            _ if line.starts_with("goroutine ") && line.ends_with(':') => LineKind::Header,
            _ if line.starts_with("created by ") => LineKind::Creator,
            _ if line.starts_with('\t') => LineKind::Place,
            _ => LineKind::Frame,
        }
    }

    /// Returns the kind of `line`, which follows a line of kind `self`. A place belongs to the line
    /// above it.
    fn next_kind(self, line: &str) -> LineKind {
        match LineKind::of(line) {
            LineKind::Place if self == LineKind::Creator => LineKind::CreatorPlace,
            kind => kind,
        }
    }
}

/// The layout of a dump of goroutines.
#[derive(Debug, Default)]
pub struct DumpLayout {
    patterns: BTreeMap<LineKind, BTreeSet<Pattern>>,
    follows: BTreeSet<(LineKind, LineKind)>,
}

impl DumpLayout {
    /// Derives the layout from a dump that Go printed.
    pub fn of(text: &str) -> DumpLayout {
        let mut layout = DumpLayout::default();
        let mut above = LineKind::Edge;
        for line in text.lines() {
            let kind = above.next_kind(line);
            layout.follows.insert((above, kind));
            layout.patterns.entry(kind).or_default().insert(Pattern::of(line));
            above = kind;
        }
        layout.follows.insert((above, LineKind::Edge));
        layout
    }

    /// Returns the patterns of a kind of line.
    pub fn patterns(&self, kind: LineKind) -> impl Iterator<Item = &Pattern> {
        self.patterns.get(&kind).into_iter().flatten()
    }

    /// Checks a dump of ours against the layout.
    ///
    /// Go has the source of every function, and the first function of a goroutine that never ran.
    /// Our dumps may differ in two ways. A frame without a source, of C code (no `::` in its name)
    /// or of our assembly, may lack a place. A goroutine that never ran may lack frames.
    ///
    /// # Errors
    /// A line has a format that Go would not print, or not at this position. The error names the
    /// first such line.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let (mut above, mut before) = (LineKind::Edge, "");
        for (line, number) in text.lines().zip(1..) {
            let kind = above.next_kind(line);
            let wrong = |what: &str| Err(format!("line {number} {what}: {before:?}, {line:?}"));
            let sourceless = !before.contains("::") || before.starts_with("gosched_fiber::arch::");
            let foreign = above == LineKind::Frame && sourceless;
            let idle = above == LineKind::Header && before.contains(" [runnable");
            let follows = self.follows.contains(&(above, kind))
                || (foreign && self.follows.contains(&(LineKind::Place, kind)))
                || (idle && matches!(kind, LineKind::Creator | LineKind::Blank));
            if !follows {
                return wrong("follows what it does not follow in Go's");
            }
            // For the creator, our dumps know the line but not the instruction.
            let place = (kind == LineKind::CreatorPlace).then_some(LineKind::Place);
            let mut patterns =
                self.patterns(kind).chain(place.into_iter().flat_map(|kind| self.patterns(kind)));
            if !patterns.any(|pattern| pattern.matches(line)) {
                return wrong("has a shape that none of Go's has");
            }
            (above, before) = (kind, line);
        }
        if self.follows.contains(&(above, LineKind::Edge)) {
            Ok(())
        } else {
            Err(format!("Go does not end with {before:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
goroutine 1 [running]:
main.main()
\t/home/a/states.go:206 +0xf3

goroutine 29 [sync.Mutex.Lock]:
sync.(*Mutex).lockSlow(0x3c3a58da60b0, {0x0?})
\t/go/src/sync/mutex.go:149 +0x15a
main.locksMutex(...)
\t/home/a/states.go:63
created by main.start in goroutine 1
\t/home/a/states.go:134 +0x1db

goroutine 33 [chan receive, locked to thread] {kind: plain, \"with space\": \"a b\"}:
main.labelled()
\t/home/a/states.go:114 +0x25
created by main.start.func1 in goroutine 1
\t/home/a/states.go:145 +0x1a
";

    const OURS: &str = "\
goroutine 1 [running]:
program::main(...)
\t/b/main.rs:7 +0x1f

goroutine 7 [sync.Mutex.Lock]:
<gosched::sync::Mutex<T> as core::ops::Fn<(A, B)>>::lock(...)
\t/b/my code/lock.rs:12
read(...)
program::locks::{closure#0}(...)
\t/b/main.rs:20 +0x3
created by program::main in goroutine 1
\t/b/main.rs:3
";

    #[test]
    fn patterns_are_regular_expressions() {
        let shown = |line: &str| Pattern::of(line).to_string();
        assert_eq!(shown("goroutine 7 [sleep]:"), r"goroutine [0-9]+ \[sleep\]:");
        assert_eq!(shown("\t/a/b.go:5 +0x1f"), r"\t\S([^\t]*\S)?:[0-9]+ \+0x[0-9a-f]+");
        assert_eq!(shown("main.f(...)"), r"\S([^\t]*\S)?\(\.\.\.\)");
        assert_eq!(shown("5 @ 0x1 0x2 0x3"), "[0-9]+ @ 0x[0-9a-f]+( 0x[0-9a-f]+)*");
    }

    /// A line of Go's, lines that match its pattern, and lines that do not.
    const LIKE: &[(&str, &[&str], &[&str])] = &[
        (
            "goroutine 7 [chan receive, locked to thread]:",
            &["goroutine 12345 [chan receive, locked to thread]:"],
            &[
                "goroutine 7 [chan receive]:",
                "goroutine 7 [chan receive, locked to thread]",
                "goroutine 7 (name) [chan receive, locked to thread]:",
                "goroutine x [chan receive, locked to thread]:",
                "goroutine  7 [chan receive, locked to thread]:",
                "Goroutine 7 [chan receive, locked to thread]:",
                "goroutine 7 [chan recv, locked to thread]:",
            ],
        ),
        (
            "\t/a/b.go:5 +0x1f",
            &["\t/c/d e.rs:77 +0x0", "\tsrc/main.rs:1 +0xabc"],
            &[
                "\t/c/d.rs:77",
                "\t/c/d.rs:77:5 +0x",
                "\t/c/d.rs: +0x1f",
                "    /c/d.rs:77 +0x1f",
                "\t/c/d.rs:77 +0xAB",
                "\t/c/d.rs:77 +1f",
                "\t/c/d.rs:77 +0x1f ",
                "\t:77 +0x1f",
            ],
        ),
        (
            "main.f(...)",
            &["a::b::{closure#0}(...)", "<A as B<(C, D)>>::f(...)"],
            &["a::b", "a::b()", "a::b(..)", "(...)", " a::b(...)", "a::b(...) "],
        ),
        (
            "created by main.f in goroutine 1",
            &["created by a::b::<C as D>::f in goroutine 12"],
            &[
                "created by goroutine 1",
                "created by a::b",
                "created by  in goroutine 1",
                "created by a::b in goroutine",
                "created by a::b in goroutine x",
            ],
        ),
        (
            "#\t0x4e4964\tmain.f+0x24\t\t/a/b.go:28",
            &["#\t0x1\ta::b::f+0x0\t/c.rs:1", "#\t0x1\t<A as B>::f+0x2\t\t\t\t/c.rs:1"],
            &[
                "#\t0x1\ta::b::f\t/c.rs:1",
                "#\t1\ta::b::f+0x0\t/c.rs:1",
                "#\t0x1\ta::b::f+0x0 /c.rs:1",
                "#\t0x1\ta::b::f+0x0\t/c.rs",
                "# 0x1\ta::b::f+0x0\t/c.rs:1",
            ],
        ),
        (
            "5 @ 0x47f46a 0x41522e 0x414d72",
            &["1 @ 0x1", "1 @ 0x1 0x2 0x3 0x4 0x5"],
            &["5 @", "5 @ ", "5 @ 0x1  0x2", "5 @ 0x1 2", "@ 0x1", "5 @ 0x1 ", "5 0x1"],
        ),
        (
            "goroutine profile: total 21",
            &["goroutine profile: total 0"],
            &["goroutine profile: total", "goroutine profile: 21"],
        ),
        (
            "# labels: {\"kind\":\"plain\", \"b\":\"c d\"}",
            &[],
            &["# labels: {\"kind\": \"plain\", \"b\": \"c d\"}", "# labels: {}"],
        ),
    ];

    #[test]
    fn lines_that_match_a_line_of_go_s_are_accepted_and_others_rejected() {
        for (line, like, unlike) in LIKE {
            let pattern = Pattern::of(line);
            assert!(pattern.matches(line), "{pattern}: {line:?}");
            for ours in *like {
                assert!(pattern.matches(ours), "{pattern}: {ours:?}");
            }
            for ours in *unlike {
                assert!(!pattern.matches(ours), "{pattern}: {ours:?}");
            }
        }
    }

    #[test]
    fn a_dump_with_go_s_layout_is_accepted() {
        let layout = DumpLayout::of(DUMP);
        layout.check(DUMP).unwrap();
        layout.check(OURS).unwrap();
        assert_eq!(layout.patterns(LineKind::Header).count(), 3);
        let other = DumpLayout::of("goroutine 1 [running]:\nmain.f()\n\t/a.go:1\n");
        let ours = "goroutine 8 [running]:\nmain::f(...)\n\t/a.rs:1\n";
        other.check(ours).expect_err("Go printed no dots there");
    }

    #[test]
    fn a_dump_with_another_layout_is_rejected() {
        let layout = DumpLayout::of(DUMP);
        for (what, by) in [
            ("goroutine 1 [running]:\n", ""),
            ("\t/b/main.rs:7 +0x1f\n", ""),
            ("program::main(...)\n", ""),
            ("\ngoroutine 7", "goroutine 7"),
            ("\ngoroutine 7", "\n\ngoroutine 7"),
            ("[sync.Mutex.Lock]", "[mutex]"),
            (
                "created by program::main in goroutine 1\n\t/b/main.rs:3\n",
                "created by program::main in goroutine 1\n",
            ),
            ("created by program::main in goroutine 1\n", ""),
            ("created by program::main in goroutine 1", "created by goroutine 1"),
            ("read(...)\n", "read(...)\n\n"),
            ("\t/b/main.rs:3\n", "\t/b/main.rs:3\n\n"),
            ("\t/b/main.rs:3\n", "\t/b/main.rs:3\nprogram::more(...)\n\t/b/main.rs:5\n"),
            ("main.rs:20 +0x3", "main.rs:20:8 0x3"),
            ("goroutine 1 [running]:\n", "\ngoroutine 1 [running]:\n"),
            ("goroutine 7 [sync", "goroutine 7 gp=0x1 m=nil [sync"),
        ] {
            let mutated = OURS.replacen(what, by, 1);
            assert_ne!(mutated, OURS, "{what:?} is there");
            layout.check(&mutated).expect_err(&mutated);
        }
    }

    #[test]
    fn a_goroutine_that_never_ran_may_have_no_frames() {
        let never = "goroutine 5 [runnable]:\nmain.f()\n\t/a.go:1\ncreated by main.g in goroutine 1\n\t/a.go:2 +0x1\n";
        let layout = DumpLayout::of(&format!("{DUMP}\n{never}"));
        let ours = "goroutine 8 [runnable]:\ncreated by a::b in goroutine 1\n\t/a.rs:5\n";
        layout.check(ours).unwrap();
        layout.check(&ours.replace("runnable", "running")).unwrap_err();
    }
}
