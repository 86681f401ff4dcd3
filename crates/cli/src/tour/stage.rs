//! What a scenario is given: how large it may be, a line that shows its progress, and a limit of
//! time. This module never runs a scenario.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::process;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A scenario that takes longer never ends: the scheduler does not do what the scenario waits for.
const LIMIT: Duration = Duration::from_secs(300);

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
    /// Dropped with the stage, which ends the thread that watches the time.
    _end: Sender<()>,
}

impl Stage {
    /// Creates the stage of scenario `number`, which begins now. Progress is shown if standard
    /// error is a terminal, unless only plain text is wanted. If the scenario does not end, the
    /// process does, with a sentence.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn new(number: usize, goroutines: u64, is_plain: bool) -> io::Result<Stage> {
        let shows_progress = io::stderr().is_terminal() && !is_plain;
        let (end, at_end) = channel();
        // Not a goroutine: the scheduler may be what does not work.
        thread::Builder::new().spawn(move || {
            if at_end.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                crate::say(&format!(
                    "scenario {number} has not ended within {LIMIT:?}: the scheduler did not keep \
                     its rule"
                ));
                process::exit(1);
            }
        })?;
        let (began, shown) = (Instant::now(), Cell::new(None));
        Ok(Stage { goroutines, shows_progress, began, shown, _end: end })
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
