//! The command as its users run it: what it prints, its exit statuses, and what it does about bad
//! input.

use std::io::Read;
use std::process::{Command, Output, Stdio};

fn gosched(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gosched"));
    command.args(arguments).env_remove("GOSCHED_SEED").stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How many scenarios the tour has.
const SCENARIOS: usize = 12;

// S170 to S179, S92
#[test]
fn every_rule_of_the_tour_is_kept() {
    let output = gosched(&["tour"]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    let titles = (1..=SCENARIOS).map(|number| format!("{number}. "));
    for title in titles {
        assert!(text.lines().any(|line| line.starts_with(&title)), "{title}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "a pipe gets no colours: {text}");
    // Each scenario has at least two steps, and a picture after each.
    let steps = text.lines().filter(|line| line.starts_with("1 ") || line.starts_with("2 "));
    assert_eq!(steps.count(), 2 * SCENARIOS, "{text}");
    let pictures = text.lines().filter(|line| line.starts_with("   global queue "));
    assert!(pictures.count() >= 2 * SCENARIOS, "{text}");
}

#[test]
fn without_a_command_the_tour_is_shown() {
    let output = gosched(&[]).output().unwrap();
    assert!(output.status.success(), "{}", stdout(&output));
    assert!(stdout(&output).starts_with("1. "), "{}", stdout(&output));
}

#[test]
fn one_scenario_can_be_chosen() {
    let output = gosched(&["tour", "4"]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("4. A full queue spills") && !text.contains("\n5. "), "{text}");
    // The older half of 256, and the goroutine that did not fit.
    assert!(text.contains("global queue G3 G4 ... G130 G259 (129)"), "{text}");
}

#[test]
fn an_unknown_scenario_is_refused_with_a_sentence() {
    for unknown in ["0", "99"] {
        let output = gosched(&["tour", unknown]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let expected =
            format!("gosched: there is no scenario {unknown}: choose one from 1 to {SCENARIOS}\n");
        assert_eq!(stderr(&output), expected);
        assert_eq!(stdout(&output), "");
    }
    let output = gosched(&["tour", "four"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("invalid value 'four'"), "{}", stderr(&output));
}

#[test]
fn text_fits_into_a_narrow_terminal() {
    let output = gosched(&["tour", "1", "--width", "20"]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 20, "{line:?} is too long: {text}");
    }
}

#[test]
fn an_output_that_is_closed_in_the_middle_is_no_error() {
    let mut child =
        gosched(&["tour"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn help_shows_an_example() {
    for (arguments, example) in
        [(&["--help"][..], "gosched tour 4"), (&["tour", "--help"], "gosched tour 4 --plain")]
    {
        let output = gosched(arguments).output().unwrap();
        assert!(output.status.success());
        assert!(stdout(&output).contains(example), "{}", stdout(&output));
    }
}
