//! What a scenario is given: how large it may be, and a line that shows its progress. This module
//! never runs a scenario.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Progress is not shown more often than this.
const INTERVAL: Duration = Duration::from_millis(100);

/// A scenario shows no progress until it has taken this long.
const DELAY: Duration = Duration::from_millis(500);

/// The stage of a scenario.
#[derive(Debug)]
pub(crate) struct Stage {
    /// How many goroutines the scenario with many goroutines starts.
    pub(crate) goroutines: u64,
    shows_progress: bool,
    began: Instant,
    shown: Cell<Option<Instant>>,
}

impl Stage {
    /// Creates the stage of a scenario that begins now. Progress is shown if standard error is a
    /// terminal.
    pub(crate) fn new(goroutines: u64) -> Stage {
        let shows_progress = io::stderr().is_terminal();
        Stage { goroutines, shows_progress, began: Instant::now(), shown: Cell::new(None) }
    }

    /// Replaces the line that shows the progress.
    pub(crate) fn progress(&self, line: &str) {
        let is_soon = self.shown.get().is_some_and(|shown| shown.elapsed() < INTERVAL);
        if !self.shows_progress || is_soon || self.began.elapsed() < DELAY {
            return;
        }
        self.shown.set(Some(Instant::now()));
        // A progress that cannot be shown is not worth an error.
        let _ = write!(io::stderr(), "\r\x1b[K{line} ...");
    }

    /// Removes the line that shows the progress.
    fn clear(&self) {
        if self.shown.get().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.clear();
    }
}
