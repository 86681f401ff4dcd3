//! Draws a scenario as text: one screen, as wide as the terminal allows. This module never decides
//! what a rule is, and never reads an event: `replay` does.

use super::replay::{MState, World};
use super::scenarios::{GO_VERSION, GoLine, Scenario};
use super::show::{Act, Failure, Names};
use anstyle::{AnsiColor, Style};
use std::collections::VecDeque;
use std::io::{self, Write};

const PLAIN: Style = Style::new();
const TITLE: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const STEP: Style = AnsiColor::Cyan.on_default();
const RUNS: Style = AnsiColor::Green.on_default();
const SEARCHES: Style = AnsiColor::Yellow.on_default();
const BLOCKED: Style = AnsiColor::Red.on_default();
const NEXT: Style = AnsiColor::Magenta.on_default();

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

    /// Explains the letters and words of the pictures.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn legend(&mut self) -> io::Result<()> {
        const LEGEND: &str = "G: a goroutine. M: a thread. P: the right to run goroutines; it has a \
             queue of 256, and run_next for the goroutine that runs next. Sysmon: a thread that \
             watches the others. Slice: what a goroutine runs before others get their turn. Each \
             numbered step is a recorded event: if it does not happen, the tour fails. Below a \
             step stands what it has changed.";
        self.text(FAINT, "", LEGEND)?;
        writeln!(self.out)
    }

    /// Writes a paragraph.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn paragraph(&mut self, text: &str) -> io::Result<()> {
        self.text(PLAIN, "", text)
    }

    /// Draws the head of a scenario.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn head(&mut self, number: usize, scenario: &Scenario) -> io::Result<()> {
        self.text(TITLE, "", &format!("{number}. {}", scenario.title))?;
        self.text(PLAIN, "", scenario.rule)?;
        if !scenario.go.is_empty() {
            self.text(FAINT, "", &format!("Go {GO_VERSION}: {}", in_go(scenario.go)))?;
        }
        writeln!(self.out)
    }

    /// Draws the steps of a scenario, and what was checked and measured.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn act(&mut self, act: &Act) -> io::Result<()> {
        let (mut world, mut at, mut before) = (World::new(act.procs), 0, Vec::new());
        for (number, step) in act.steps.iter().enumerate() {
            act.events[at..step.end].iter().for_each(|event| world.apply(event));
            at = step.end;
            self.text(STEP, "", &format!("{} {}", number + 1, step.caption))?;
            let lines = picture(&world, &act.names);
            // A line that is as before is not drawn again, unless nothing has changed.
            let is_new = |line: &Vec<Part>| !before.contains(line);
            let is_same = !lines.iter().any(is_new);
            for line in lines.iter().filter(|line| is_same || is_new(line)) {
                self.line("   ", line)?;
            }
            before = lines;
        }
        // At the peak and at the end.
        for counts in act
            .counts
            .iter()
            .max_by_key(|counts| counts.bars[1].1)
            .into_iter()
            .chain(act.counts.last())
        {
            self.text(STEP, "", &counts.caption)?;
            for (name, value, most) in &counts.bars {
                self.line("   ", &bar(name, *value, *most))?;
            }
        }
        for fact in &act.facts {
            self.text(GOOD, "", &format!("ok {fact}"))?;
        }
        for note in &act.notes {
            self.text(FAINT, "    ", note)?;
        }
        writeln!(self.out)
    }

    /// Draws a failure: what the rule demands, and what the scheduler did.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn failure(&mut self, failure: &Failure) -> io::Result<()> {
        self.text(BAD, "", "The scheduler did not keep the rule.")?;
        self.text(PLAIN, "", &format!("Expected: {}", failure.expected))?;
        self.text(PLAIN, "", "Seen instead:")?;
        for line in &failure.seen {
            writeln!(self.out, "  {line}")?;
        }
        writeln!(self.out)
    }

    /// Writes a line of a picture. A line that is too long is wrapped, and loses its columns.
    fn line(&mut self, indent: &str, parts: &[Part]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.text.chars().count()).sum();
        if indent.len() + length > self.width {
            let text: String = parts.iter().map(|part| part.text.as_str()).collect();
            return self.text(PLAIN, indent, &text);
        }
        write!(self.out, "{indent}")?;
        for Part { style, text } in parts {
            write!(self.out, "{style}{text}{style:#}")?;
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

/// Lists lines of Go's sources: each file once, with its lines.
fn in_go(lines: &[GoLine]) -> String {
    let mut text = String::new();
    let mut file = "";
    for line in lines {
        let separator = if text.is_empty() { "" } else { ", " };
        text.push_str(separator);
        if line.file != file {
            file = line.file;
            text.push_str("runtime/");
            text.push_str(file);
        }
        text.push_str(&format!(":{} {}", line.line, line.what));
    }
    text
}

/// Breaks a text into lines of at most `width` characters. A word longer than a line is broken.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let words = text.split_whitespace().map(|word| word.chars().collect::<Vec<_>>());
    let parts = words.flat_map(|word| -> Vec<String> {
        word.chunks(width.max(1)).map(|part| part.iter().collect()).collect()
    });
    for word in parts {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    lines.push(line);
    lines
}

/// A part of a line, with one style.
#[derive(Debug, PartialEq)]
struct Part {
    style: Style,
    text: String,
}

fn part(style: Style, text: impl Into<String>) -> Part {
    Part { style, text: text.into() }
}

/// The lines that show a state: one for each P, one for the global queue, one for the Ms without a
/// P.
fn picture(world: &World, names: &Names) -> Vec<Vec<Part>> {
    let mut lines = Vec::new();
    for (number, p) in &world.ps {
        let m = world.ms.iter().find(|(_, m)| m.p == Some(*number));
        let (style, text) = match m {
            Some((m, view)) => (style(view.state), format!("M{m} {}", activity(view.state, names))),
            None => (FAINT, "idle".to_owned()),
        };
        let next = p.run_next.map_or_else(|| "-".to_owned(), |g| names.name(g));
        let queue: VecDeque<u64> = p.queue.iter().map(|place| place.1).collect();
        lines.push(vec![
            part(TITLE, format!("P{number:<2} ")),
            part(style, format!("{text:<22}")),
            part(FAINT, " run_next "),
            part(NEXT, format!("{next:<5}")),
            part(FAINT, " queue "),
            part(PLAIN, row(&queue, names)),
        ]);
    }
    lines.push(vec![part(FAINT, "global queue "), part(PLAIN, row(&world.global, names))]);
    if !world.on_the_way.is_empty() {
        let gs: Vec<String> = world.on_the_way.iter().map(|&g| names.name(g)).collect();
        lines.push(vec![part(FAINT, "on the way "), part(PLAIN, gs.join(" "))]);
    }
    let without_p: Vec<_> = world.ms.iter().filter(|(_, m)| m.p.is_none()).collect();
    if !without_p.is_empty() {
        let mut parts = vec![part(FAINT, "without a P: ")];
        for (index, (m, view)) in without_p.into_iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            let activity = match view.state {
                MState::Scheduling => "goes to sleep".to_owned(),
                state => activity(state, names),
            };
            parts.push(part(style(view.state), format!("{separator}M{m} {activity}")));
        }
        lines.push(parts);
    }
    lines
}

fn style(state: MState) -> Style {
    match state {
        MState::Running(_) => RUNS,
        MState::Spinning => SEARCHES,
        MState::InCall(_) => BLOCKED,
        MState::Sleeping => FAINT,
        MState::Scheduling | MState::Waking => PLAIN,
    }
}

/// What an M does, in words.
pub(super) fn activity(state: MState, names: &Names) -> String {
    match state {
        MState::Scheduling => "schedules".to_owned(),
        MState::Running(g) => format!("runs {}", names.name(g)),
        MState::Spinning => "searches for work".to_owned(),
        MState::InCall(g) => format!("in a call of {}", names.name(g)),
        MState::Waking => "wakes".to_owned(),
        MState::Sleeping => "sleeps".to_owned(),
    }
}

/// A quantity as a line: its name, a bar, and its value.
fn bar(name: &str, value: u64, most: u64) -> Vec<Part> {
    const LENGTH: u64 = 20;
    let filled = (value * LENGTH / most.max(1)) as usize;
    let rest = LENGTH as usize - filled;
    vec![
        part(FAINT, format!("{name:<8} ")),
        part(RUNS, "#".repeat(filled)),
        part(FAINT, ".".repeat(rest)),
        part(PLAIN, format!(" {}", grouped(value))),
    ]
}

/// Writes a number with a comma between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
        assert_eq!(wrap("longer than a line", 4), ["long", "er", "than", "a", "line"]);
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }

    #[test]
    fn a_long_queue_shows_its_ends() {
        let names = Names::new(&(1..=300).collect::<Vec<_>>());
        assert_eq!(row(&VecDeque::new(), &names), "empty");
        assert_eq!(row(&(1..=6).collect(), &names), "G1 G2 G3 G4 G5 G6");
        assert_eq!(row(&(3..=258).collect(), &names), "G3 G4 ... G257 G258 (256)");
    }

    #[test]
    fn each_file_of_go_is_named_once() {
        let line = |file, line, what| GoLine { file, line, what };
        let lines = [line("proc.go", 1, "a"), line("proc.go", 2, "b"), line("time.go", 3, "c")];
        assert_eq!(in_go(&lines), "runtime/proc.go:1 a, :2 b, runtime/time.go:3 c");
    }
}
