//! `gosched tour`: shows each rule of the scheduler at work. This module never decides what a rule
//! is: `scenarios` does.

mod page;
mod replay;
mod scenarios;
mod screen;
mod show;
mod stage;

use page::Page;
use scenarios::{SCENARIOS, Scenario};
use screen::Screen;
use stage::Stage;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

/// What the user wants to see.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The number of one scenario, or all.
    pub(crate) scenario: Option<usize>,
    /// Whether to print without colours.
    pub(crate) plain: bool,
    /// The width of the text in columns, or that of the terminal.
    pub(crate) width: Option<usize>,
    /// How many goroutines the scenario with many goroutines starts.
    pub(crate) goroutines: u64,
    /// The folder into which a page is written, instead of text.
    pub(crate) html: Option<PathBuf>,
}

/// How the tour ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Every rule was kept.
    Passed,
    /// A rule was not kept.
    Failed,
}

/// Runs the tour.
///
/// # Errors
/// There is no such scenario, goroutines are threads here, or the output cannot be written.
pub(crate) fn run(options: &Options) -> io::Result<End> {
    let chosen = choose(options.scenario)?;
    if gosched::runtime::backend() != gosched::runtime::Backend::MultiThread {
        let why = "goroutines are threads in this process, so there is no scheduler to show";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    if let Some(why) = changes_the_rules() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    match &options.html {
        None => show(options, &chosen),
        Some(folder) => write_page(options, &chosen, folder),
    }
}

/// Returns why the scheduler does not follow its usual rules, if a variable says so.
fn changes_the_rules() -> Option<&'static str> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let debug = std::env::var("GODEBUG").unwrap_or_default();
    if is_set("GOSCHED_SEED") {
        return Some("GOSCHED_SEED is set, so the scheduler would decide at random: unset it");
    }
    if is_set("GOSCHED_SLICE") {
        return Some("GOSCHED_SLICE changes the length of a slice, which the tour shows: unset it");
    }
    let is_off = debug.split(',').any(|setting| setting.trim() == "asyncpreemptoff=1");
    is_off.then_some(
        "GODEBUG turns preemption off (asyncpreemptoff=1), which the tour shows: unset it",
    )
}

/// Returns the scenarios with their numbers.
///
/// # Errors
/// There is no such scenario.
fn choose(number: Option<usize>) -> io::Result<Vec<(usize, &'static Scenario)>> {
    let all = (1..).zip(SCENARIOS);
    let chosen: Vec<_> = match number {
        None => all.collect(),
        Some(wanted) => all.filter(|&(number, _)| number == wanted).collect(),
    };
    match (number, chosen.is_empty()) {
        (Some(number), true) => {
            let last = SCENARIOS.len();
            let why = format!("there is no scenario {number}: choose one from 1 to {last}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        _ => Ok(chosen),
    }
}

/// Shows scenarios as text.
///
/// # Errors
/// The output cannot be written.
fn show(options: &Options, chosen: &[(usize, &Scenario)]) -> io::Result<End> {
    let mut out = if options.plain {
        anstream::AutoStream::never(io::stdout())
    } else {
        anstream::AutoStream::auto(io::stdout())
    };
    let is_interactive = io::stdout().is_terminal() && io::stdin().is_terminal();
    let (mut shown, mut failed, mut checked) = (0, 0, 0);
    for &(number, scenario) in chosen {
        let outcome = (scenario.run)(&Stage::new(number, options.goroutines, options.plain)?);
        // The text is written at once, so that Ctrl-C cannot leave half of a colour behind.
        let mut text = Vec::new();
        let mut screen = Screen::new(&mut text, options.width.unwrap_or_else(width));
        if shown == 0 {
            screen.legend()?;
        }
        screen.head(number, scenario)?;
        match outcome {
            Ok(act) => {
                checked += act.steps.len() + act.facts.len();
                screen.act(&act)?;
            }
            Err(failure) => {
                failed += 1;
                screen.failure(&failure)?;
            }
        }
        out.write_all(&text)?;
        out.flush()?;
        shown += 1;
        if is_interactive && shown < chosen.len() && !wants_next(&mut out)? {
            break;
        }
    }
    if failed == 0 && shown > 1 {
        let mut text = Vec::new();
        Screen::new(&mut text, options.width.unwrap_or_else(width)).paragraph(&format!(
            "{shown} scenarios, {checked} steps and facts checked: all rules were kept."
        ))?;
        out.write_all(&text)?;
    }
    end(&mut out, shown, failed)
}

/// Runs scenarios and writes a page that shows them.
///
/// # Errors
/// The folder cannot be written.
fn write_page(
    options: &Options,
    chosen: &[(usize, &Scenario)],
    folder: &std::path::Path,
) -> io::Result<End> {
    let mut page = Page::new(folder)?;
    let mut failed = 0;
    for &(number, scenario) in chosen {
        let stage = Stage::new(number, options.goroutines, options.plain)?;
        let outcome = (scenario.run)(&stage);
        failed += usize::from(outcome.is_err());
        page.add(number, scenario, &outcome);
    }
    let path = page.write()?;
    let mut out = io::stdout();
    writeln!(out, "{}: open this file in a browser.", path.display())?;
    end(&mut out, chosen.len(), failed)
}

/// Says how many scenarios failed.
///
/// # Errors
/// The output cannot be written.
fn end(out: &mut impl Write, shown: usize, failed: usize) -> io::Result<End> {
    if failed == 0 {
        return Ok(End::Passed);
    }
    let scenarios = if shown == 1 { "scenario" } else { "scenarios" };
    writeln!(out, "{failed} of {shown} {scenarios}: the scheduler did not keep the rule.")?;
    Ok(End::Failed)
}

/// Waits for Enter. Returns false if the user wants to stop.
fn wants_next(out: &mut impl Write) -> io::Result<bool> {
    write!(out, "Enter: go on. q: end. ")?;
    out.flush()?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer)?;
    writeln!(out)?;
    Ok(read > 0 && !answer.trim().eq_ignore_ascii_case("q"))
}

/// Returns the width of the terminal. Text is not wider than can be read with ease.
fn width() -> usize {
    const USUAL: usize = 80;
    const MAX: usize = 100;
    let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    columns.unwrap_or(USUAL).min(MAX)
}
