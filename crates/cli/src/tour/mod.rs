//! `gosched tour`: shows each rule of the scheduler at work. This module never decides what a rule
//! is: `scenarios` does.

mod replay;
mod scenarios;
mod screen;
mod show;

use scenarios::{SCENARIOS, Scenario};
use screen::Screen;
use std::io::{self, BufRead, IsTerminal, Write};

/// What the user wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The number of one scenario, or all.
    pub(crate) scenario: Option<usize>,
    /// Whether to print without colours.
    pub(crate) plain: bool,
    /// The width of the text in columns, or that of the terminal.
    pub(crate) width: Option<usize>,
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
/// There is no such scenario, or the output cannot be written.
pub(crate) fn run(options: Options) -> io::Result<End> {
    let chosen: Vec<(usize, &Scenario)> = match options.scenario {
        None => (1..).zip(SCENARIOS).collect(),
        Some(number) => {
            let index = number.checked_sub(1);
            let Some(scenario) = index.and_then(|index| SCENARIOS.get(index)) else {
                let last = SCENARIOS.len();
                let why = format!("there is no scenario {number}: choose one from 1 to {last}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            };
            vec![(number, scenario)]
        }
    };
    let mut out = if options.plain {
        anstream::AutoStream::never(io::stdout())
    } else {
        anstream::AutoStream::auto(io::stdout())
    };
    let is_interactive = io::stdout().is_terminal() && io::stdin().is_terminal();
    let mut failed = 0;
    for (index, &(number, scenario)) in chosen.iter().enumerate() {
        let outcome = (scenario.run)();
        let mut screen = Screen::new(&mut out, options.width.unwrap_or_else(width));
        screen.head(number, scenario)?;
        match outcome {
            Ok(act) => screen.act(&act)?,
            Err(failure) => {
                failed += 1;
                screen.failure(&failure)?;
            }
        }
        if is_interactive && index + 1 < chosen.len() && !wants_next(&mut out)? {
            break;
        }
    }
    match failed {
        0 => Ok(End::Passed),
        _ => {
            writeln!(out, "{failed} of {} scenarios did not keep their rule.", chosen.len())?;
            Ok(End::Failed)
        }
    }
}

/// Waits for Enter. Returns false if the user wants to stop.
fn wants_next(out: &mut impl Write) -> io::Result<bool> {
    write!(out, "Enter: the next one. q and Enter: the end. ")?;
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
