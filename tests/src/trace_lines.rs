//! A parser for the lines of `GODEBUG=schedtrace`: the names of their fields in order, and the
//! class of each value.

use std::collections::{BTreeMap, BTreeSet};

/// The class of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Digits.
    Number,
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Bool,
    /// The empty text.
    Empty,
    /// A number followed by words in parentheses.
    State,
    /// `[ 1 2 ]`
    List,
    /// Any other text.
    Other,
}

impl Class {
    fn of(value: &str) -> Class {
        let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let list = value.strip_prefix("[ ").and_then(|rest| rest.strip_suffix(" ]"));
        let state = value.split_once('(').filter(|(_, words)| words.ends_with(')'));
        match value {
            "" => Class::Empty,
            "nil" => Class::Nil,
            "true" | "false" => Class::Bool,
            _ if is_number(value) => Class::Number,
            _ if list.is_some_and(|list| list.split(' ').all(is_number)) => Class::List,
            _ if state.is_some_and(|(number, _)| is_number(number)) => Class::State,
            _ => Class::Other,
        }
    }
}

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The kind of the line: `SCHED`, `  P`, `  M`, or `  G`.
    pub kind: String,
    /// The number after the kind: an id, or the milliseconds of a `SCHED` line.
    pub number: u64,
    /// The text between the number and the colon.
    unit: String,
    /// Names and values. The name is empty for a list that has none.
    pub fields: Vec<(String, String)>,
}

impl Line {
    /// Parses a line. Returns `None` if it is not a trace line.
    pub fn parse(line: &str) -> Option<Line> {
        let (head, mut rest) = line.split_once(": ")?;
        let digits = head.find(|c: char| c.is_ascii_digit())?;
        let (of, number) = head.split_at(digits);
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, unit) = (number[..end].parse().ok()?, number[end..].to_owned());
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let length = field_length(rest);
            let field = &rest[..length];
            let (name, value) =
                if field.starts_with('[') { ("", field) } else { field.split_once('=')? };
            fields.push((name.to_owned(), value.to_owned()));
            // Exactly one space separates fields, and none follows the last field.
            rest = match rest[length..].strip_prefix(' ') {
                Some("") => return None,
                Some(more) => more,
                None if length == rest.len() => "",
                None => return None,
            };
        }
        Some(Line { kind: of.trim_end().to_owned(), number, unit, fields })
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// Returns the length of the first field: up to a space that is not in brackets or parentheses.
fn field_length(text: &str) -> usize {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, c)| {
        depth += i32::from("([".contains(*c)) - i32::from(")]".contains(*c));
        *c == ' ' && depth == 0
    });
    end.map_or(text.len(), |(at, _)| at)
}

/// The format of each kind of line, derived from Go's output.
#[derive(Debug, Default)]
pub struct Trace {
    kinds: BTreeMap<String, LineFormat>,
}

#[derive(Debug)]
struct LineFormat {
    unit: String,
    names: Vec<String>,
    classes: Vec<BTreeSet<Class>>,
}

impl Trace {
    /// Derives the formats from what Go printed. Skips other lines.
    ///
    /// # Panics
    /// Two lines of the same kind have different formats.
    pub fn of(text: &str) -> Trace {
        let mut trace = Trace::default();
        for line in text.lines().filter_map(Line::parse) {
            let names: Vec<String> = line.fields.iter().map(|(name, _)| name.clone()).collect();
            let classes = vec![BTreeSet::new(); names.len()];
            let new = LineFormat { unit: line.unit.clone(), names: names.clone(), classes };
            let sort = trace.kinds.entry(line.kind.clone()).or_insert(new);
            assert_eq!(sort.names, names, "{line:?}");
            assert_eq!(sort.unit, line.unit, "{line:?}");
            for ((_, value), classes) in line.fields.iter().zip(&mut sort.classes) {
                classes.insert(Class::of(value));
            }
        }
        trace
    }

    /// Returns the kinds of lines, sorted.
    pub fn sorts(&self) -> Vec<&str> {
        self.kinds.keys().map(String::as_str).collect()
    }

    /// Returns the names of the fields of a kind.
    pub fn names(&self, of: &str) -> Option<&[String]> {
        self.kinds.get(of).map(|sort| sort.names.as_slice())
    }

    /// Checks a line of ours, and returns it parsed.
    ///
    /// # Errors
    /// Go would not print the line.
    pub fn check(&self, text: &str) -> Result<Line, String> {
        let wrong = |what: &str| Err(format!("{what}: {text:?}"));
        let Some(line) = Line::parse(text) else { return wrong("not such a line") };
        let Some(sort) = self.kinds.get(&line.kind) else { return wrong("of nothing Go prints") };
        if line.unit != sort.unit {
            return wrong("another unit");
        }
        let names: Vec<&str> = line.fields.iter().map(|(name, _)| name.as_str()).collect();
        if names != sort.names {
            return Err(format!("the fields are {names:?}, in Go's {:?}", sort.names));
        }
        for ((name, value), classes) in line.fields.iter().zip(&sort.classes) {
            if !classes.contains(&Class::of(value)) {
                return Err(format!("{name}={value:?} in {text:?}, in Go's {classes:?}"));
            }
        }
        if let Some((number, words)) = state(&line)
            && number == "4"
            && words.is_empty()
        {
            return wrong("waits for nothing");
        }
        Ok(line)
    }
}

/// Returns the number and the words of a goroutine's state.
fn state(line: &Line) -> Option<(&str, &str)> {
    let (number, words) = line.get("status")?.split_once('(')?;
    Some((number, words.strip_suffix(')')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETAIL: &str = "\
SCHED 108ms: gomaxprocs=2 idleprocs=0 gcwaiting=false sysmonwait=false
  P0: status=1 schedtick=9 m=4 timerslen=0
  P1: status=0 schedtick=9 m=nil timerslen=0
  M5: p=nil curg=nil preemptoff= blocked=true lockedg=nil
  M4: p=0 curg=9 preemptoff= blocked=false lockedg=6
  G1: status=3(chan receive) m=0 lockedm=nil
  G4: status=4(select (no cases)) m=nil lockedm=2
  G7: status=1() m=nil lockedm=nil
";
    const PLAIN: &str = "SCHED 105ms: gomaxprocs=2 runqueue=2 [ 0 1 ] schedticks=[ 11 8 ]\n";

    #[test]
    fn trace_lines_of_go_s_format_are_accepted() {
        let trace = Trace::of(DETAIL);
        assert_eq!(trace.sorts(), ["  G", "  M", "  P", "SCHED"]);
        for line in DETAIL.lines() {
            trace.check(line).unwrap();
        }
        let g = trace.check("  G12: status=4(sync.Mutex.Lock) m=nil lockedm=3").unwrap();
        assert_eq!((g.number, g.get("lockedm")), (12, Some("3")));
        let plain = Trace::of(PLAIN);
        plain
            .check("SCHED 0ms: gomaxprocs=4 runqueue=0 [ 9 0 0 0 ] schedticks=[ 1 2 3 4 ]")
            .unwrap();
    }

    #[test]
    fn trace_lines_of_another_format_are_rejected() {
        let trace = Trace::of(DETAIL);
        for line in [
            "SCHED 108: gomaxprocs=2 idleprocs=0 gcwaiting=false sysmonwait=false",
            "SCHED 108ms: idleprocs=0 gomaxprocs=2 gcwaiting=false sysmonwait=false",
            "SCHED 108ms: gomaxprocs=2 idleprocs=0 gcwaiting=0 sysmonwait=false",
            "SCHED 108ms: gomaxprocs=2 idleprocs=0 gcwaiting=false",
            "SCHED 108ms: gomaxprocs=2  idleprocs=0 gcwaiting=false sysmonwait=false",
            "SCHED 108ms: gomaxprocs=2 idleprocs=0 gcwaiting=false sysmonwait=false ",
            " P0: status=1 schedtick=9 m=4 timerslen=0",
            "  P0: status=1 schedtick=9 m=4 timerslen=0 runnext=1",
            "  P0: status=1 schedtick=9 m=-1 timerslen=0",
            "  P0: status=idle schedtick=9 m=4 timerslen=0",
            "  P: status=1 schedtick=9 m=4 timerslen=0",
            "  M4: p=0 curg=9 preemptoff=gc blocked=false lockedg=6",
            "  M4: p=0 curg=9 preemptoff= blocked=0 lockedg=6",
            "  G1: status=3 m=0 lockedm=nil",
            "  G1: status=4() m=nil lockedm=nil",
            "  G1: status=waiting(chan receive) m=0 lockedm=nil",
            "  G1: status=3(chan receive) m=0 lockedm=none",
            "  X1: status=3(chan receive) m=0 lockedm=nil",
            "goroutine 1 [running]:",
            "",
        ] {
            trace.check(line).expect_err(line);
        }
        let plain = Trace::of(PLAIN);
        for line in [
            "SCHED 105ms: gomaxprocs=2 runqueue=2 [0 1] schedticks=[ 11 8 ]",
            "SCHED 105ms: gomaxprocs=2 runqueue=2 schedticks=[ 11 8 ]",
            "SCHED 105ms: gomaxprocs=2 runqueue=2 [ 0 1 ] schedticks=[ 11 8",
            "SCHED 105ms: gomaxprocs=2 runqueue=2 [ 0 1 ]",
        ] {
            plain.check(line).expect_err(line);
        }
    }
}
