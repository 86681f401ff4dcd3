//! All goroutines as Go prints them.

use super::goroutines::{self, Goroutine, Whom};
use super::level;
use super::symbols::{Symbol, Symbols, is_shown};
use crate::gmp::state::GState;
use crate::sched::viewer::{Frames, Viewer};
use std::fmt;
use std::io::{self, Write};

/// Everything, as one text.
pub(crate) fn text() -> String {
    let mut text = Vec::new();
    // A vector takes everything.
    let _ = write_text(&mut text);
    String::from_utf8(text).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into())
}

/// One after the other: what is written is not kept.
///
/// # Errors
/// `out` refuses.
pub(crate) fn write_text(out: &mut dyn Write) -> io::Result<()> {
    write_all(&mut goroutines::viewer(), Whom::All, out)
}

pub(super) fn write_all(viewer: &mut Viewer, whom: Whom, out: &mut dyn Write) -> io::Result<()> {
    let mut printer = Printer::new();
    goroutines::for_each(viewer, whom, |viewer, goroutine, frames| {
        printer.print(out, viewer, goroutine, frames)
    })
}

/// Writes goroutines, a blank line between them.
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
        out: &mut dyn Write,
        viewer: &Viewer,
        goroutine: &Goroutine,
        frames: &Frames,
    ) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            writeln!(out)?;
        }
        writeln!(out, "{}", Header(goroutine))?;
        self.print_frames(out, viewer, goroutine, frames)?;
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

    fn print_frames(
        &mut self,
        out: &mut dyn Write,
        viewer: &Viewer,
        goroutine: &Goroutine,
        frames: &Frames,
    ) -> io::Result<()> {
        let mut shown = self.print_addresses(out, viewer, &frames.first)?;
        if frames.elided > 0 {
            writeln!(out, "...{} frames elided...", frames.elided)?;
        }
        shown += self.print_addresses(out, viewer, &frames.last)?;
        if frames.is_cut {
            return writeln!(out, "...additional frames elided...");
        }
        match goroutine.runs {
            // It has not begun: it will, there.
            Some(runs) if shown == 0 && goroutine.state == GState::Runnable => {
                writeln!(out, "{runs}(...)")
            }
            _ => Ok(()),
        }
    }

    /// How many functions were written.
    fn print_addresses(
        &mut self,
        out: &mut dyn Write,
        viewer: &Viewer,
        addresses: &[usize],
    ) -> io::Result<usize> {
        let mut shown = 0;
        for &address in addresses {
            let symbols = self.symbols.at(address, viewer);
            for symbol in symbols.iter().filter(|symbol| is_shown(symbol)) {
                write!(out, "{}", Frame(symbol))?;
                shown += 1;
            }
        }
        Ok(shown)
    }
}

/// `goroutine 7 [chan receive, 2 minutes, locked to thread] {key: value}:`.
pub(super) struct Header<'a>(pub(super) &'a Goroutine);

impl fmt::Display for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MINUTE: u64 = 60_000_000_000;
        let goroutine = self.0;
        write!(f, "goroutine {} [{}", goroutine.id, goroutine.what())?;
        if let Some(minutes @ 1..) = goroutine.waiting.map(|waiting| waiting / MINUTE) {
            write!(f, ", {minutes} minutes")?;
        }
        if goroutine.is_locked {
            f.write_str(", locked to thread")?;
        }
        f.write_str("]")?;
        let mut separator = " {";
        for (key, value) in goroutine.labels().filter(|_| level::labels_are_shown()) {
            write!(f, "{separator}{}: {}", Quoted(key), Quoted(value))?;
            separator = ", ";
        }
        f.write_str(if separator == ", " { "}:" } else { ":" })
    }
}

/// As Go writes labels: in quotes if there is a need.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ['.', '/', '_'].contains(&c);
        match self.0.chars().all(is_plain) {
            true => f.write_str(self.0),
            false => write!(f, "{:?}", self.0),
        }
    }
}

/// Two lines: the function, and where in it.
struct Frame<'a>(&'a Symbol);

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}(...)", self.0.name)?;
        if let Some((file, line)) = &self.0.place {
            write!(f, "\t{file}:{line}")?;
            if let Some(offset) = self.0.offset {
                write!(f, " +{offset:#x}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
