//! Draws a scenario as text: one screen, as wide as the terminal allows. This module never reads
//! the events: `show` has prepared the steps.

use super::replay::{MState, World};
use super::scenarios::Scenario;
use super::show::{Act, Failure, Names, Step};
use anstyle::{AnsiColor, Style};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};

const TITLE: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const STEP: Style = AnsiColor::Cyan.on_default();

/// The narrowest width that text is wrapped to.
const MIN_WIDTH: usize = 20;

/// Where and how scenarios are drawn.
pub(crate) struct Screen<'a> {
    out: &'a mut dyn Write,
    width: usize,
}

impl std::fmt::Debug for Screen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("width", &self.width).finish_non_exhaustive()
    }
}

impl<'a> Screen<'a> {
    /// Creates a screen of `width` columns.
    pub(crate) fn new(out: &'a mut dyn Write, width: usize) -> Screen<'a> {
        Screen { out, width: width.max(MIN_WIDTH) }
    }

    /// Draws the head of a scenario.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn head(&mut self, number: usize, scenario: &Scenario) -> io::Result<()> {
        self.text(TITLE, "", &format!("{number}. {}", scenario.title))?;
        self.text(Style::new(), "", scenario.rule)?;
        self.text(FAINT, "", &format!("Go: {}", scenario.source))?;
        writeln!(self.out)
    }

    /// Draws the steps of a scenario, and what was checked.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn act(&mut self, act: &Act) -> io::Result<()> {
        for (number, step) in act.steps.iter().enumerate() {
            self.text(STEP, "", &format!("{}  {}", number + 1, step.caption))?;
            for line in picture(step, &act.names) {
                self.text(Style::new(), "   ", &line)?;
            }
        }
        for fact in &act.facts {
            self.text(GOOD, "", &format!("ok  {fact}"))?;
        }
        writeln!(self.out)
    }

    /// Draws a failure: what the rule demands, and what the scheduler did.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn failure(&mut self, failure: &Failure) -> io::Result<()> {
        self.text(BAD, "", "The scheduler did not keep the rule.")?;
        self.text(Style::new(), "", &format!("Expected: {}", failure.expected))?;
        self.text(Style::new(), "", "Seen instead:")?;
        for line in &failure.seen {
            writeln!(self.out, "  {line}")?;
        }
        writeln!(self.out)
    }

    /// Writes a paragraph, wrapped at the width of the screen. Every line begins with `indent`.
    fn text(&mut self, style: Style, indent: &str, text: &str) -> io::Result<()> {
        for line in wrap(text, self.width - indent.len()) {
            writeln!(self.out, "{indent}{style}{line}{style:#}")?;
        }
        Ok(())
    }
}

/// Breaks a text into lines of at most `width` characters. A word longer than a line gets a line of
/// its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// The lines that show a step: one for each P, one for the global queue, one for the other Ms.
fn picture(step: &Step, names: &Names) -> Vec<String> {
    let World { ps, ms, global } = &step.world;
    let mut lines = Vec::new();
    for (number, p) in ps {
        let mut line = format!("P{number} ");
        let m = ms.iter().find(|(_, m)| m.p == Some(*number));
        let _ = match m {
            Some((m, view)) => write!(line, "M{m} {}", activity(view.state, names)),
            None => write!(line, "idle"),
        };
        let next = p.run_next.map_or_else(|| "-".to_owned(), |g| names.name(g));
        let queue: VecDeque<u64> = p.queue.iter().map(|place| place.1).collect();
        let _ = write!(line, " | run_next {next} | queue {}", row(&queue, names));
        lines.push(line);
    }
    lines.push(format!("global queue {}", row(global, names)));
    let without_p = ms.iter().filter(|(_, m)| m.p.is_none());
    let others: Vec<String> =
        without_p.map(|(m, view)| format!("M{m} {}", activity(view.state, names))).collect();
    if !others.is_empty() {
        lines.push(others.join(", "));
    }
    lines
}

fn activity(state: MState, names: &Names) -> String {
    match state {
        MState::Scheduling => "schedules".to_owned(),
        MState::Running(g) => format!("runs {}", names.name(g)),
        MState::Spinning => "searches for work".to_owned(),
        MState::InCall(g) => format!("is in a call of {}", names.name(g)),
        MState::Sleeping => "sleeps".to_owned(),
    }
}

/// A queue: its first two and its last two goroutines, and how many there are.
fn row(queue: &VecDeque<u64>, names: &Names) -> String {
    const SHOWN: usize = 6;
    let all: Vec<String> = queue.iter().map(|&g| names.name(g)).collect();
    match all.len() {
        0 => "empty".to_owned(),
        len if len <= SHOWN => all.join(" "),
        len => {
            let (first, last) = (all[..2].join(" "), all[len - 2..].join(" "));
            format!("{first} ... {last} ({len})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("longer than a line", 4), ["longer", "than", "a", "line"]);
        assert_eq!(wrap("", 10), [""]);
    }
}
