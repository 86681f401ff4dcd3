//! All goroutines in Go's text format. This module never inspects a goroutine: `goroutines` passes
//! what to print.

use super::goroutines::{self, Goroutine, GoroutineFilter};
use super::level;
use super::symbols::{Symbol, Symbols, is_shown};
use crate::gmp::state::GState;
use crate::sched::inspector::{Frame, Frames, Inspector};
use std::fmt;
use std::io::{self, Write};

/// Returns all goroutines as one string.
pub(crate) fn text() -> String {
    goroutines::as_text(write_text)
}

/// Writes all goroutines, without keeping the whole text in memory.
///
/// # Errors
/// `out` fails.
pub(crate) fn write_text(out: &mut dyn Write) -> io::Result<()> {
    write_all(&mut goroutines::inspector(), GoroutineFilter::All, out)
}

pub(super) fn write_all(
    inspector: &mut Inspector,
    filter: GoroutineFilter<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut printer = Printer::new();
    goroutines::write_each(inspector, filter, out, |text, inspector, goroutine, frames| {
        printer.print(text, inspector, goroutine, frames)
    })
}

/// Prints goroutines, with a blank line between them.
#[derive(Debug)]
pub(super) struct Printer {
    symbols: Symbols,
    is_first: bool,
}

impl Printer {
    pub(super) fn new() -> Printer {
        Printer { symbols: Symbols::default(), is_first: true }
    }

    pub(super) fn print(
        &mut self,
        out: &mut Vec<u8>,
        inspector: &Inspector,
        goroutine: &Goroutine,
        frames: &Frames,
    ) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            writeln!(out)?;
        }
        writeln!(out, "{}", Header(goroutine))?;
        self.print_frames(out, inspector, frames)?;
        match goroutine.runs {
            // A goroutine that has not begun to run: it will begin with this function. (A goroutine
            // that is about to end has frames, which are the runtime's.)
            Some(runs)
                if frames.first.is_empty()
                    && !frames.is_cut
                    && goroutine.state == GState::Runnable =>
            {
                writeln!(out, "{runs}(...)")?;
            }
            _ => {}
        }
        if let Some(site) = goroutine.site_of_creation() {
            write!(out, "created by {}", goroutine.creator())?;
            match goroutine.parent {
                0 => writeln!(out)?,
                parent => writeln!(out, " in goroutine {parent}")?,
            }
            writeln!(out, "\t{}:{}", site.file(), site.line())?;
        }
        Ok(())
    }

    pub(super) fn print_frames(
        &mut self,
        out: &mut Vec<u8>,
        inspector: &Inspector,
        frames: &Frames,
    ) -> io::Result<()> {
        self.print_some(out, inspector, &frames.first)?;
        if frames.elided > 0 {
            writeln!(out, "...{} frames elided...", frames.elided)?;
        }
        self.print_some(out, inspector, &frames.last)?;
        if frames.is_cut { writeln!(out, "...additional frames elided...") } else { Ok(()) }
    }

    fn print_some<'a>(
        &mut self,
        out: &mut Vec<u8>,
        inspector: &Inspector,
        frames: impl IntoIterator<Item = &'a Frame>,
    ) -> io::Result<()> {
        for frame in frames {
            let symbols = self.symbols.at(frame.at, inspector);
            for symbol in symbols.iter().filter(|symbol| is_shown(symbol)) {
                write!(out, "{}", Function { symbol, frame })?;
            }
        }
        Ok(())
    }
}

/// The first line of a goroutine:
/// `goroutine 7 [chan receive, 2 minutes, locked to thread] {key: value}:`.
pub(super) struct Header<'a>(pub(super) &'a Goroutine);

impl fmt::Display for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MINUTE: u64 = 60_000_000_000;
        let goroutine = self.0;
        write!(f, "goroutine {}", goroutine.id)?;
        if level::is_detailed() {
            write!(f, " gp={:#x}", goroutine.gp)?;
            match goroutine.m {
                Some((number, mp)) => write!(f, " m={number} mp={mp:#x}")?,
                None => f.write_str(" m=nil")?,
            }
        }
        write!(f, " [{}", goroutine.status())?;
        if let Some(minutes @ 1..) = goroutine.waiting.map(|waiting| waiting / MINUTE) {
            write!(f, ", {minutes} minutes")?;
        }
        if goroutine.is_locked {
            f.write_str(", locked to thread")?;
        }
        f.write_str("]")?;
        let mut separator = " {";
        for (key, value) in goroutine.labels().filter(|_| level::is_tracebacklabels_on()) {
            write!(f, "{separator}{}: {}", Quoted(key), Quoted(value))?;
            separator = ", ";
        }
        f.write_str(if separator == ", " { "}:" } else { ":" })
    }
}

/// The key or value of a label as Go prints it: in quotes if necessary, and then only in ASCII.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ['.', '/', '_'].contains(&c);
        if self.0.chars().all(is_plain) {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\\' | '"' => write!(f, "\\{c}")?,
                ' '..='~' => write!(f, "{c}")?,
                '\0'..' ' => write!(f, "\\x{:02x}", u32::from(c))?,
                '\x7f'..='\u{ffff}' => write!(f, "\\u{:04x}", u32::from(c))?,
                _ => write!(f, "\\U{:08x}", u32::from(c))?,
            }
        }
        f.write_str("\"")
    }
}

/// Two lines: the function, and the position in it. An inlined function has no frame of its own,
/// and so no offset and no addresses.
struct Function<'a> {
    symbol: &'a Symbol,
    frame: &'a Frame,
}

impl fmt::Display for Function<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Function { symbol, frame: Frame { pc, sp, fp, .. } } = self;
        writeln!(f, "{}(...)", symbol.name)?;
        if let Some((file, line)) = &symbol.place {
            write!(f, "\t{file}:{line}")?;
            if let Some(offset @ 1..) = symbol.start.map(|start| pc - start) {
                write!(f, " +{offset:#x}")?;
            }
            if symbol.start.is_some() && level::is_detailed() {
                write!(f, " fp={fp:#x} sp={sp:#x} pc={pc:#x}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::wait_reason::WaitReason;

    fn goroutine(state: GState, waiting: Option<u64>) -> Goroutine {
        Goroutine {
            id: 7,
            gp: 0x10,
            m: None,
            state,
            reason: WaitReason::ChanReceive,
            waiting,
            is_locked: false,
            parent: 1,
            site: None,
            runs: None,
            details: None,
        }
    }

    #[test]
    fn a_header_shows_whole_minutes_from_the_first_minute_on() {
        const SECOND: u64 = 1_000_000_000;
        for (seconds, wanted) in [
            (0, "goroutine 7 [chan receive]:"),
            (59, "goroutine 7 [chan receive]:"),
            (60, "goroutine 7 [chan receive, 1 minutes]:"),
            (179, "goroutine 7 [chan receive, 2 minutes]:"),
            (86400, "goroutine 7 [chan receive, 1440 minutes]:"),
        ] {
            let goroutine = goroutine(GState::Waiting, Some(seconds * SECOND));
            assert_eq!(Header(&goroutine).to_string(), wanted);
        }
        let locked =
            Goroutine { is_locked: true, ..goroutine(GState::Syscall, Some(120 * SECOND)) };
        let wanted = "goroutine 7 [syscall, 2 minutes, locked to thread]:";
        assert_eq!(Header(&locked).to_string(), wanted);
        let running = goroutine(GState::Running, None);
        assert_eq!(Header(&running).to_string(), "goroutine 7 [running]:");
    }

    /// The expected texts are the output of Go 1.27.
    #[test]
    fn labels_in_dumps_are_quoted_as_in_go() {
        for (label, wanted) in [
            ("plain./_9", "plain./_9"),
            ("", ""),
            ("a b", r#""a b""#),
            ("a-b", r#""a-b""#),
            ("größe", r#""gr\u00f6\u00dfe""#),
            ("\x1b\0\x7f", r#""\x1b\x00\u007f""#),
            ("\n\r\t\x07", r#""\n\r\t\x07""#),
            ("\\\"'", r#""\\\"'""#),
            ("\u{fffd}", r#""\ufffd""#),
            ("\u{200b}\u{ffff}", r#""\u200b\uffff""#),
            ("😀\u{10ffff}", r#""\U0001f600\U0010ffff""#),
            ("\u{80}", r#""\u0080""#),
            ("a:b,{}", r#""a:b,{}""#),
        ] {
            assert_eq!(Quoted(label).to_string(), wanted);
        }
    }
}
