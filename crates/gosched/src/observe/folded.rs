//! All goroutines with equal stacks merged, in the format of Go's `goroutine?debug=1`. The text
//! never contains the id or the state of a goroutine.

use super::goroutines::{self, GoroutineFilter};
use super::symbols::{Symbols, is_shown};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::{self, Write};

/// What the goroutines of one group have in common.
#[derive(Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    frames: Vec<usize>,
    /// The function that the goroutines will run, if they have not begun to run.
    runs: Option<&'static str>,
    labels: Vec<(String, String)>,
}

/// Returns all goroutines as one string.
pub(crate) fn folded() -> String {
    let mut inspector = goroutines::inspector();
    let mut kinds: HashMap<Kind, u64> = HashMap::new();
    let mut total = 0u64;
    let mut symbols = Symbols::default();
    let Ok(()) = goroutines::for_each(
        &mut inspector,
        GoroutineFilter::All,
        |inspector, goroutine, frames| {
            let labels = goroutine.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
            let is_cut = frames.is_cut;
            let mut frames: Vec<usize> = frames.shown().map(|frame| frame.at).collect();
            // The innermost frames of the runtime are dropped, so that equal stacks of the program
            // are merged even if their paths inside the runtime differ.
            let mut is_ours = |&address: &usize| {
                symbols.at(address, inspector).iter().all(|symbol| symbol.is_runtime)
            };
            let ours = frames.iter().take_while(|address| is_ours(address)).count();
            frames.drain(..if ours < frames.len() { ours } else { 0 });
            let runs = goroutine.runs.filter(|_| frames.is_empty() && !is_cut);
            if frames.is_empty() {
                frames.push(folded as fn() -> String as usize);
            }
            let kind = Kind { frames, runs, labels: labels.collect() };
            *kinds.entry(kind).or_default() += 1;
            total += 1;
            Ok::<(), Infallible>(())
        },
    );
    let mut kinds: Vec<(Kind, u64)> = kinds.into_iter().collect();
    kinds.sort_by(|(one, count), (other, its_count)| {
        its_count.cmp(count).then_with(|| one.cmp(other))
    });
    let mut text = format!("goroutine profile: total {total}\n");
    for (kind, count) in &kinds {
        let _ = write!(text, "{count} @");
        for address in &kind.frames {
            // Go prints return addresses.
            let _ = write!(text, " {:#x}", address + 1);
        }
        if let Some(labels) = labels(&kind.labels) {
            let _ = write!(text, "\n# labels: {labels}");
        }
        text.push('\n');
        if let Some(runs) = kind.runs {
            let _ = write!(text, "#\t{:#x}\t{runs}\n\n", kind.frames[0]);
            continue;
        }
        for &address in &kind.frames {
            for symbol in symbols.at(address, &inspector).iter().filter(|symbol| is_shown(symbol)) {
                let _ = write!(text, "#\t{address:#x}\t{}", symbol.name);
                if let Some(start) = symbol.start {
                    let _ = write!(text, "+{:#x}", address - start);
                }
                if let Some((file, line)) = &symbol.place {
                    let _ = write!(text, "\t{file}:{line}");
                }
                text.push('\n');
            }
        }
        text.push('\n');
    }
    text
}

/// Formats labels as Go does: `{"key":"value", "key":"value"}`. Returns `None` if there are no
/// labels.
fn labels(labels: &[(String, String)]) -> Option<String> {
    let mut sorted: Vec<_> = labels.iter().collect();
    sorted.sort();
    let pair = |(key, value): &&(String, String)| format!("{}:{}", Quoted(key), Quoted(value));
    let all: Vec<_> = sorted.iter().map(pair).collect();
    (!all.is_empty()).then(|| format!("{{{}}}", all.join(", ")))
}

/// A string in quotes, as by Go's `%q`.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '\x07' => f.write_str("\\a")?,
                '\x08' => f.write_str("\\b")?,
                '\x0b' => f.write_str("\\v")?,
                '\x0c' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\\' | '"' => write!(f, "\\{c}")?,
                '\0'..' ' | '\x7f' => write!(f, "\\x{:02x}", u32::from(c))?,
                // Printable characters are not escaped.
                _ if c == '\'' || c.escape_debug().len() == 1 => write!(f, "{c}")?,
                '\x7f'..='\u{ffff}' => write!(f, "\\u{:04x}", u32::from(c))?,
                _ => write!(f, "\\U{:08x}", u32::from(c))?,
            }
        }
        f.write_str("\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are the output of Go's `%q`.
    #[test]
    fn labels_in_folded_dumps_are_quoted_as_in_go() {
        for (text, wanted) in [
            ("plain", r#""plain""#),
            ("q\"\\'", r#""q\"\\'""#),
            ("\x07\x08\x0c\n\r\t\x0b", r#""\a\b\f\n\r\t\v""#),
            ("\0\x1b\x7f", r#""\x00\x1b\x7f""#),
            ("größe日本😀", "\"größe日本😀\""),
            ("\u{200b}\u{2028}\u{e0001}", r#""\u200b\u2028\U000e0001""#),
        ] {
            assert_eq!(Quoted(text).to_string(), wanted);
        }
    }
}
