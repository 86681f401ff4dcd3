//! All goroutines as JSON. A field is never omitted: a value that is not known is `null`.

use super::goroutines::{self, Goroutine, GoroutineFilter};
use super::symbols::{Symbols, is_shown};
use crate::gmp::state::GState;
use crate::sched::inspector::{Frame, Frames, Inspector};
use std::fmt::{self, Write as _};
use std::io::{self, Write};

/// Returns all goroutines as one string.
pub(crate) fn json() -> String {
    goroutines::as_text(write_json)
}

/// Writes all goroutines, without keeping the whole text in memory.
///
/// # Errors
/// `out` fails.
pub(crate) fn write_json(out: &mut dyn Write) -> io::Result<()> {
    let mut symbols = Symbols::default();
    let mut separator = "";
    out.write_all(b"{\"goroutines\":[")?;
    let mut inspector = goroutines::inspector();
    goroutines::write_each(
        &mut inspector,
        GoroutineFilter::All,
        out,
        |text, inspector, goroutine, frames| {
            text.extend(separator.bytes());
            separator = ",";
            write_one(text, inspector, goroutine, frames, &mut symbols)
        },
    )?;
    out.write_all(b"]}")
}

fn write_one(
    out: &mut Vec<u8>,
    inspector: &Inspector,
    goroutine: &Goroutine,
    frames: &Frames,
    symbols: &mut Symbols,
) -> io::Result<()> {
    let is_waiting = goroutine.state == GState::Waiting;
    let name = goroutine.details.as_deref().and_then(|details| details.name.as_deref());
    write!(out, "{{\"id\":{},\"name\":{}", goroutine.id, Nullable(name.map(Text)))?;
    write!(out, ",\"state\":{}", Text(goroutine.state.name()))?;
    write!(out, ",\"wait_reason\":{}", Nullable(is_waiting.then(|| Text(goroutine.status()))))?;
    write!(out, ",\"waiting_ns\":{}", Nullable(goroutine.waiting))?;
    write!(out, ",\"locked_to_thread\":{},\"labels\":{{", goroutine.is_locked)?;
    let labels = goroutine.details.as_deref().map_or(&[][..], |details| &details.labels);
    let mut separator = "";
    for (key, value) in labels {
        write!(out, "{separator}{}:{}", Text(key), Text(value))?;
        separator = ",";
    }
    let parent = (goroutine.parent != 0).then_some(goroutine.parent);
    let site = goroutine.site_of_creation().map(|site| format!("{}:{}", site.file(), site.line()));
    write!(out, "}},\"parent\":{}", Nullable(parent))?;
    write!(out, ",\"created_at\":{}", Nullable(site.as_deref().map(Text)))?;
    write!(out, ",\"frames\":[")?;
    let mut separator = "";
    for &Frame { at, .. } in frames.shown() {
        for symbol in symbols.at(at, inspector).iter().filter(|symbol| is_shown(symbol)) {
            let (file, line) = match &symbol.place {
                Some((file, line)) => (Some(Text(file)), Some(line)),
                None => (None, None),
            };
            write!(
                out,
                "{separator}{{\"function\":{},\"file\":{},\"line\":{},\"address\":\"{at:#x}\"}}",
                Text(&symbol.name),
                Nullable(file),
                Nullable(line),
            )?;
            separator = ",";
        }
    }
    write!(out, "],\"truncated\":{}}}", frames.is_cut || frames.elided > 0)
}

/// A value, or `null` for `None`.
struct Nullable<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Nullable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// A JSON string: in quotes and escaped.
pub(super) struct Text<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(Text("a\"b\\c\nd\te\u{1}ö").to_string(), r#""a\"b\\c\nd\te\u0001ö""#);
        assert_eq!(Nullable::<u32>(None).to_string(), "null");
    }
}
