//! `GOTRACEBACK`: how much is shown when a program ends badly.

use crate::sys::godebug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// 0: no frames; 1: the program's; 2: the runtime's too.
    pub(super) frames: u32,
    /// All goroutines, where Go would show one.
    pub(super) all: bool,
    /// The process ends by a signal, and leaves a core.
    pub(super) crash: bool,
}

/// What the environment says.
pub(super) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| parse(&std::env::var("GOTRACEBACK").unwrap_or_default()))
}

/// Reads what the environment says about reports, once: a report must not wait for the lock of the environment.
pub(super) fn read_environment() {
    level();
    is_tracebacklabels_on();
    is_leakhints_on();
}

/// Whether a report names goroutines that wait for each other: `GODEBUG=leakhints=1`.
pub(super) fn is_leakhints_on() -> bool {
    static TOLD: OnceLock<bool> = OnceLock::new();
    *TOLD.get_or_init(|| godebug::value("leakhints") == Some(1))
}

/// See [`force_details`].
static DETAILS_FORCED: AtomicBool = AtomicBool::new(false);

/// From here on everything is told, whatever the environment says: a signal ends the process.
pub(super) fn force_details() {
    DETAILS_FORCED.store(true, Ordering::Relaxed);
}

/// Whether the runtime's own functions are shown, and where records and frames are in memory.
pub(super) fn is_detailed() -> bool {
    DETAILS_FORCED.load(Ordering::Relaxed) || level().frames >= 2
}

/// Whether labels are part of a goroutine's first line: all but `GODEBUG=tracebacklabels=1` says no.
pub(super) fn is_tracebacklabels_on() -> bool {
    static SHOWN: OnceLock<bool> = OnceLock::new();
    *SHOWN.get_or_init(|| godebug::value("tracebacklabels").is_none_or(|value| value == 1))
}

fn parse(text: &str) -> Level {
    let level = |frames, all, crash| Level { frames, all, crash };
    match text {
        "none" => level(0, false, false),
        "single" | "" => level(1, false, false),
        "all" => level(1, true, false),
        "system" => level(2, true, false),
        "crash" => level(2, true, true),
        number => level(number.parse().unwrap_or(0), true, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_gos() {
        let found = ["none", "single", "", "all", "system", "crash", "wer", "0", "1", "2"]
            .map(parse)
            .map(|level| (level.frames, level.all, level.crash));
        let wanted = [
            (0, false, false),
            (1, false, false),
            (1, false, false),
            (1, true, false),
            (2, true, false),
            (2, true, true),
            (0, true, false),
            (0, true, false),
            (1, true, false),
            (2, true, false),
        ];
        assert_eq!(found, wanted);
    }
}
