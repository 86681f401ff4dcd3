//! Measures each case, compares it with its control, and reports the limits that do not hold.

use std::process::ExitCode;

/// Maximum number of attempts per case. Other load on the machine may hit one side of a comparison
/// and not the other, so a case fails only if no attempt keeps its limit.
const ATTEMPTS: u32 = 5;

/// A quantity, measured for gosched and for its control at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The value for gosched.
    pub(crate) ours: f64,
    /// The value for OS threads that do the same.
    pub(crate) control: f64,
}

/// The permitted values, relative to the control.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// At most `factor` times the control, plus `plus`.
    AtMost { factor: f64, plus: f64 },
    /// At least `factor` times the control.
    AtLeast { factor: f64 },
}

/// A measurement with its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// The measured quantity, as a noun phrase: `lateness of a 1 ms ticker beside 4 hogs, 2 Ps`.
    pub(crate) name: &'static str,
    /// The unit of both numbers.
    pub(crate) unit: &'static str,
    /// The permitted values.
    pub(crate) limit: Limit,
    /// Measures both sides, at the same time where possible.
    pub(crate) measure: fn() -> Measured,
}

impl Limit {
    fn bound(self, control: f64) -> f64 {
        match self {
            Limit::AtMost { factor, plus } => control * factor + plus,
            Limit::AtLeast { factor } => control * factor,
        }
    }

    fn holds(self, measured: Measured) -> bool {
        let bound = self.bound(measured.control);
        match self {
            Limit::AtMost { .. } => measured.ours <= bound,
            Limit::AtLeast { .. } => measured.ours >= bound,
        }
    }
}

/// Measures the cases whose names contain one of the arguments, or all cases. With `--report`,
/// makes one attempt per case and prints limits that do not hold without failing.
pub(crate) fn run(cases: impl Iterator<Item = Case>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_report = arguments.iter().any(|word| word == "--report");
    let names: Vec<&String> = arguments.iter().filter(|word| !word.starts_with("--")).collect();
    let chosen =
        |case: &Case| names.is_empty() || names.iter().any(|name| case.name.contains(*name));
    let (mut held, mut failed) = (0u32, 0u32);
    println!("{:<72} {:>10} {:>10} {:>10}", "what", "ours", "control", "limit");
    for case in cases.filter(chosen) {
        let holds = measure(&case, if is_report { 1 } else { ATTEMPTS });
        held += u32::from(holds);
        failed += u32::from(!holds);
    }
    if is_report {
        println!("{} cases, {failed} over their limit in one attempt", held + failed);
    } else {
        println!("{held} passed, {failed} failed");
    }
    if held + failed == 0 {
        eprintln!("no case has such a name");
        return ExitCode::FAILURE;
    }
    if failed > 0 && !is_report { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns whether the limit held in one of the attempts.
fn measure(case: &Case, attempts: u32) -> bool {
    for _ in 0..attempts {
        let measured = (case.measure)();
        let holds = case.limit.holds(measured);
        let (ours, control) = (measured.ours, measured.control);
        let bound = case.limit.bound(control);
        let verdict = if holds { "" } else { "  over the limit" };
        let name = format!("{} ({})", case.name, case.unit);
        println!("{name:<72} {ours:>10.2} {control:>10.2} {bound:>10.2}{verdict}");
        if holds {
            return true;
        }
    }
    false
}

/// Returns the number after the last occurrence of `word`.
pub(crate) fn number(text: &str, word: &str) -> f64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().rposition(|found| *found == word);
    let number = at.and_then(|at| words.get(at + 1)?.parse().ok());
    number.unwrap_or_else(|| panic!("no `{word}`: {text}"))
}
