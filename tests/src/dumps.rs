//! Parsers for dumps of goroutines. A parser rejects text that does not have the exact format.

use std::collections::BTreeMap;

/// Fails if the watchdog of fatal reports has cut off a process's report. The watchdog does so
/// after ten seconds without progress: to the watchdog, a machine without CPU time for the report
/// looks like a lock that is never released.
///
/// # Errors
/// The report is cut off. The error is the report.
pub fn ensure_complete(last_words: &str) -> Result<(), String> {
    const CUT: [&str; 2] =
        ["the report is incomplete", "the functions of the trace cannot be named"];
    let is_cut = CUT.iter().any(|words| last_words.contains(words));
    if is_cut { Err(last_words.to_owned()) } else { Ok(()) }
}

/// A goroutine of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedGoroutine {
    /// The goroutine's id.
    pub id: u64,
    /// The goroutine's state: the first item in the brackets.
    pub state: String,
    /// The waiting time in minutes, if the dump shows one.
    pub minutes: Option<u64>,
    /// Whether the goroutine is locked to its thread.
    pub locked: bool,
    /// Labels, in the order of the dump.
    pub labels: Vec<(String, String)>,
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
    /// The place that started the goroutine.
    pub creator: Option<Creator>,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name of the function, without arguments.
    pub function: String,
    /// File and line, if the dump shows them.
    pub place: Option<(String, u64)>,
}

/// The function, goroutine and place that started a goroutine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creator {
    /// Name of the function.
    pub function: String,
    /// Id of the goroutine; 0 for a thread that is not a goroutine.
    pub goroutine: u64,
    /// File and line.
    pub place: (String, u64),
}

impl DumpedGoroutine {
    /// Returns the innermost frame of a function with this name, in any module.
    pub fn frame(&self, name: &str) -> Option<&Frame> {
        self.frames.iter().find(|frame| frame.is_call_of(name))
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }
}

impl Frame {
    /// Returns whether this is a call of a function with this name, or of a closure in it.
    pub fn is_call_of(&self, name: &str) -> bool {
        self.function.split("::").any(|part| part == name)
    }
}

/// Parses all goroutines of a dump.
///
/// # Errors
/// A line does not have the format of a dump. The error contains the line.
pub fn parse(text: &str) -> Result<Vec<DumpedGoroutine>, String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut block = header(line).ok_or_else(|| format!("no header: {line:?}"))?;
        while let Some(line) = lines.next_if(|line| !line.is_empty()) {
            if block.creator.is_some() {
                return Err(format!("after the creator: {line:?}"));
            }
            // Frames that are unknown or over the limit.
            if line.starts_with("...") && line.ends_with(" frames elided...") {
                continue;
            }
            let place = lines.next_if(|line| line.starts_with('\t'));
            let place = place.map(|line| parse_place(line).ok_or(format!("no place: {line:?}")));
            let place = place.transpose()?;
            if let Some(created) = line.strip_prefix("created by ") {
                let creator = creator(created, place);
                block.creator = Some(creator.ok_or_else(|| format!("no creator: {line:?}"))?);
            } else {
                let function = function(line).ok_or_else(|| format!("no frame: {line:?}"))?;
                block.frames.push(Frame { function: function.to_owned(), place });
            }
        }
        blocks.push(block);
        if lines.next() == Some("") && lines.peek().is_none() {
            return Err("a blank line at the end".to_owned());
        }
    }
    Ok(blocks)
}

/// Parses `goroutine 7 [chan receive, 2 minutes, locked to thread] {a: b}:`.
fn header(line: &str) -> Option<DumpedGoroutine> {
    let rest = line.strip_prefix("goroutine ")?.strip_suffix(':')?;
    let (before, rest) = rest.split_once(" [")?;
    // Go's own dump at a fatal signal has ` gp=… m=… mp=…` after the id.
    let id = before.split(' ').next()?;
    let (words, labels) = rest.split_once(']')?;
    let mut words = words.split(", ");
    let state = words.next().filter(|state| !state.is_empty())?.to_owned();
    let mut words = words.peekable();
    let minutes = words.next_if(|word| word.ends_with(" minutes"));
    let minutes = minutes.map(|word| word.trim_end_matches(" minutes").parse().ok());
    let locked = words.next_if_eq(&"locked to thread").is_some();
    let labels = match labels {
        "" => Vec::new(),
        _ => parse_labels(labels.strip_prefix(" {")?.strip_suffix('}')?)?,
    };
    let minutes = match minutes {
        Some(minutes) => Some(minutes?),
        None => None,
    };
    let (frames, creator) = (Vec::new(), None);
    let id = id.parse().ok()?;
    words.next().is_none().then_some(DumpedGoroutine {
        id,
        state,
        minutes,
        locked,
        labels,
        frames,
        creator,
    })
}

/// Parses `kind: plain, "with space": "a b"`.
fn parse_labels(text: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    let mut rest = text;
    loop {
        let (key, more) = word(rest)?;
        let (value, more) = word(more.strip_prefix(": ")?)?;
        labels.push((key, value));
        match more {
            "" => return Some(labels),
            _ => rest = more.strip_prefix(", ")?,
        }
    }
}

/// Splits off the first word, quoted or plain. Returns the word and the rest.
fn word(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([':', ',', '}', '"', ' ']).unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let mut escaped = false;
    let end = quoted.find(|c| {
        let end = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        end
    })?;
    let plain = quoted[..end].replace("\\\"", "\"").replace("\\\\", "\\");
    Some((plain, &quoted[end + 1..]))
}

/// Parses `\t/path/file.rs:123 +0x1f`.
fn parse_place(line: &str) -> Option<(String, u64)> {
    let line = line.strip_prefix('\t')?;
    let place = match line.rsplit_once(" +0x") {
        Some((place, offset)) => {
            u64::from_str_radix(offset.split(' ').next()?, 16).ok()?;
            place
        }
        None => line,
    };
    let (file, number) = place.rsplit_once(':')?;
    Some((file.to_owned(), number.parse().ok()?)).filter(|_| !file.is_empty())
}

/// Returns the function's name without its arguments.
fn function(line: &str) -> Option<&str> {
    let mut depth = 0;
    let open = line.char_indices().rev().find_map(|(at, c)| {
        depth += i32::from(c == ')') - i32::from(c == '(');
        (depth == 0).then_some(at)
    })?;
    let name = &line[..open];
    (line.ends_with(')') && !name.is_empty() && name.trim() == name).then_some(name)
}

fn creator(created: &str, place: Option<(String, u64)>) -> Option<Creator> {
    // A creator that is not a goroutine has no id.
    let (function, goroutine) = match created.rsplit_once(" in goroutine ") {
        Some((function, goroutine)) => (function, goroutine.parse().ok()?),
        None => (created, 0),
    };
    Some(Creator { function: function.to_owned(), goroutine, place: place? })
}

/// A stack of a folded dump, which goroutines with equal stacks share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Number of goroutines with this stack.
    pub count: usize,
    /// Addresses of the frames.
    pub addresses: Vec<u64>,
    /// Labels, as text.
    pub labels: Option<String>,
    /// Frames with their places.
    pub frames: Vec<Frame>,
}

impl Stack {
    /// Returns whether the stack contains a function with this name.
    pub fn has(&self, name: &str) -> bool {
        self.frames.iter().any(|frame| frame.is_call_of(name))
    }
}

/// Parses a folded dump. Returns the total and the stacks.
///
/// # Errors
/// A line does not have the format of a folded dump. The error contains the line.
pub fn parse_folded(text: &str) -> Result<(usize, Vec<Stack>), String> {
    let mut lines = text.lines();
    let total = lines.next().and_then(|line| line.strip_prefix("goroutine profile: total "));
    let total = total.and_then(|total| total.parse().ok()).ok_or("no total")?;
    let mut stacks: Vec<Stack> = Vec::new();
    let mut inside = false;
    for line in lines {
        let wrong = || format!("not so: {line:?}");
        let labels = line.strip_prefix("# labels: ");
        match stacks.last_mut() {
            _ if line.is_empty() => inside = false,
            Some(stack) if inside && labels.is_some() && stack.frames.is_empty() => {
                stack.labels = labels.map(str::to_owned);
            }
            Some(stack) if inside => stack.frames.push(folded_frame(line).ok_or_else(wrong)?),
            _ => {
                stacks.push(folded_stack(line).ok_or_else(wrong)?);
                inside = true;
            }
        }
    }
    Ok((total, stacks))
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn folded_stack(line: &str) -> Option<Stack> {
    let (count, addresses) = line.split_once(" @ ")?;
    let addresses = addresses.split(' ').map(hex).collect::<Option<_>>()?;
    Some(Stack { count: count.parse().ok()?, addresses, labels: None, frames: Vec::new() })
}

fn folded_frame(line: &str) -> Option<Frame> {
    let mut columns = line.strip_prefix("#\t")?.split('\t').filter(|column| !column.is_empty());
    hex(columns.next()?)?;
    let function = columns.next()?;
    let function = match function.rsplit_once("+0x") {
        Some((name, offset)) => u64::from_str_radix(offset, 16).ok().map(|_| name)?,
        None => function,
    };
    let place = match columns.next() {
        Some(place) => Some(parse_place(&format!("\t{place}"))?),
        None => None,
    };
    columns.next().is_none().then(|| Frame { function: function.to_owned(), place })
}

/// Counts the goroutines with a frame of each of these functions.
pub fn count<'a>(blocks: &[DumpedGoroutine], names: &[&'a str]) -> BTreeMap<&'a str, usize> {
    let of = |name: &str| blocks.iter().filter(|block| block.frame(name).is_some()).count();
    names.iter().map(|name| (*name, of(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
goroutine 1 [running]:
a::main(...)
\t/b c/main.rs:7 +0x1f

goroutine 7 [select (no cases), 2 minutes, locked to thread] {name: x, \"with space\": \"a \\\"b\"}:
<a::B<T> as c::D<(E, F)>>::waits::{closure#0}(...)
\t/b/main.rs:20
read(...)
created by a::main in goroutine 1
\tmain.rs:3
";

    #[test]
    fn a_dump_is_parsed() {
        let blocks = parse(DUMP).unwrap();
        let [main, other] = blocks.as_slice() else { panic!("{blocks:?}") };
        assert_eq!((main.id, main.state.as_str(), main.locked), (1, "running", false));
        assert_eq!(main.frame("main").unwrap().place, Some(("/b c/main.rs".to_owned(), 7)));
        assert_eq!((other.minutes, other.locked), (Some(2), true));
        assert_eq!(other.state, "select (no cases)");
        assert_eq!((other.label("name"), other.label("with space")), (Some("x"), Some("a \"b")));
        assert!(other.frame("waits").is_some() && other.frame("wait").is_none());
        assert_eq!(other.frame("read").unwrap().place, None);
        let creator = other.creator.as_ref().unwrap();
        assert_eq!((creator.function.as_str(), creator.goroutine), ("a::main", 1));
        assert_eq!(creator.place, ("main.rs".to_owned(), 3));
    }

    #[test]
    fn text_that_is_no_dump_is_rejected() {
        for (what, by) in [
            ("goroutine 1 [", "goroutine one ["),
            ("[running]", "[]"),
            ("[running]:", "[running]"),
            ("a::main(...)", "a::main"),
            ("main.rs:7 +", "main.rs +"),
            (" +0x1f", " +0xzz"),
            ("2 minutes", "two minutes"),
            ("locked to thread", "locked"),
            ("{name: x", "{name=x"),
            (" in goroutine 1\n", " in goroutine x\n"),
            ("\tmain.rs:3\n", ""),
            ("\tmain.rs:3\n", "\tmain.rs:3\na::more(...)\n"),
            ("\tmain.rs:3\n", "\tmain.rs:3\n\n"),
            ("\tmain.rs:3\n", "\t:3\n"),
        ] {
            let mutated = DUMP.replacen(what, by, 1);
            assert_ne!(mutated, DUMP, "{what:?} is there");
            parse(&mutated).expect_err(&mutated);
        }
    }

    const FOLDED: &str = "\
goroutine profile: total 6
5 @ 0x47f46a 0x41522e
# labels: {\"kind\":\"plain\"}
#\t0x4e4964\ta::receives+0x24\t\t/b/main.rs:28
#\t0x4e4965\tread+0x1

1 @ 0x1

";

    #[test]
    fn a_folded_dump_is_parsed() {
        let (total, stacks) = parse_folded(FOLDED).unwrap();
        assert_eq!((total, stacks.len()), (6, 2));
        assert_eq!((stacks[0].count, stacks[0].addresses.len()), (5, 2));
        assert_eq!(stacks[0].labels.as_deref(), Some("{\"kind\":\"plain\"}"));
        assert!(stacks[0].has("receives") && stacks[0].has("read"));
        for (what, by) in [
            ("total 6", "total"),
            ("5 @ 0x4", "x @ 0x4"),
            ("0x41522e", "41522e"),
            ("#\t0x4e4964", "#\t4e4964"),
            ("+0x24", "+0xxx"),
            ("main.rs:28", "main.rs"),
            ("\n\n1 @", "\n1 @"),
        ] {
            let mutated = FOLDED.replacen(what, by, 1);
            assert_ne!(mutated, FOLDED, "{what:?} is there");
            parse_folded(&mutated).expect_err(&mutated);
        }
    }
}
