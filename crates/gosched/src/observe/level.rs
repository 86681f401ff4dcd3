//! `GOTRACEBACK`: how much is shown when a program ends because of an error. Each setting is read
//! once: a later change of the environment never has an effect.

use gosched_fiber::base::environment;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The settings that a value of `GOTRACEBACK` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// Which frames are shown. 0: none; 1: the program's; 2: also the runtime's.
    pub(super) frames: u32,
    /// Whether all goroutines are shown in cases where Go shows only one by default.
    pub(super) all: bool,
    /// Whether the process ends by a signal and leaves a core dump.
    pub(super) crash: bool,
}

/// Returns the level that the environment sets.
pub(super) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL
        .get_or_init(|| parse(&environment::TRACEBACK.read().unwrap_or_default().to_string_lossy()))
}

/// Reads all settings for reports from the environment in advance: a report must not wait for the
/// lock of the environment.
pub(super) fn read_environment() {
    level();
    is_tracebacklabels_on();
    is_leakhints_on();
}

/// Returns whether a report includes goroutines that wait for each other: `GODEBUG=leakhints=1`.
pub(super) fn is_leakhints_on() -> bool {
    static LEAK_HINTS_ON: OnceLock<bool> = OnceLock::new();
    *LEAK_HINTS_ON.get_or_init(|| environment::LEAK_HINTS.number() == Some(1))
}

/// Whether [`force_details`] was called.
static DETAILS_FORCED: AtomicBool = AtomicBool::new(false);

/// Turns all details on, regardless of the environment. Called when SIGQUIT, a limit or a stack
/// overflow ends the process.
pub(super) fn force_details() {
    DETAILS_FORCED.store(true, Ordering::Relaxed);
}

/// Returns whether the runtime's own functions are shown, and the addresses of Gs, Ms and frames.
pub(super) fn is_detailed() -> bool {
    DETAILS_FORCED.load(Ordering::Relaxed) || level().frames >= 2
}

/// Returns whether a goroutine's first line includes its labels: by default, and with
/// `GODEBUG=tracebacklabels=1`. Any other number turns them off.
pub(super) fn is_tracebacklabels_on() -> bool {
    static SHOWN: OnceLock<bool> = OnceLock::new();
    *SHOWN.get_or_init(|| environment::TRACEBACK_LABELS.number().is_none_or(|value| value == 1))
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
    fn gotraceback_is_parsed_as_in_go() {
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
