//! The command as its users run it: what it prints, its exit statuses, and what it does about bad
//! input.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
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

/// An empty folder for a test. Two runs of this suite at the same time have different folders.
fn scratch(test: &str) -> PathBuf {
    let name = format!("{test}-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// How many scenarios the tour has.
const SCENARIOS: usize = 18;
/// A crowd that is started quickly without optimization too.
const FEW: &str = "--goroutines=20000";

// S170 to S180, S92, S131, S132
#[test]
fn every_rule_of_the_tour_is_kept() {
    let output = gosched(&["tour", FEW]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    let titles = (1..=SCENARIOS).map(|number| format!("{number}. "));
    for title in titles {
        assert!(text.lines().any(|line| line.starts_with(&title)), "{title}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "a pipe gets no colours: {text}");
    // Each scenario but the last has at least two steps, and a picture after each.
    let steps = text.lines().filter(|line| line.starts_with("1 ") || line.starts_with("2 "));
    assert_eq!(steps.count(), 2 * (SCENARIOS - 1), "{text}");
    let pictures = text.lines().filter(|line| line.starts_with("   global queue "));
    assert!(pictures.count() >= SCENARIOS - 1, "{text}");
    assert!(text.ends_with("all rules were kept.\n"), "{text}");
    assert!(text.contains("ok 20,000 goroutines waited at the same moment."), "{text}");
}

#[test]
fn one_scenario_can_be_chosen() {
    let output = gosched(&["tour", "4"]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("\n4. A full queue spills\n") && !text.contains("\n5. "), "{text}");
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
    let output = gosched(&["tour", "--width", "20", FEW]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 20, "{line:?} is too long: {text}");
    }
}

#[test]
fn an_output_that_is_closed_in_the_middle_is_no_error() {
    let mut child =
        gosched(&["tour", FEW]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn an_output_that_is_full_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = gosched(&["tour", "1"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("gosched: No space left"), "{}", stderr(&output));
}

#[test]
fn ctrl_c_ends_the_tour_with_a_sentence_and_status_130() {
    let mut child = gosched(&["tour", "--goroutines=1000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("1. ")));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    // The tour blocks if its output is not read.
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest:?} {:?}", output.status.signal());
    assert_eq!(stderr(&output), "gosched: interrupted\n");
}

#[test]
fn the_tour_refuses_a_scheduler_that_follows_other_rules() {
    for (name, value, why) in [
        ("GOSCHED_SEED", "1", "would decide at random"),
        ("GOSCHED_SLICE", "1ms", "changes the length of a slice"),
        ("GODEBUG", "schedtrace=0,asyncpreemptoff=1", "turns preemption off"),
    ] {
        let output = gosched(&["tour", "1"]).env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

#[test]
fn a_crowd_is_smaller_where_addresses_are_limited() {
    let script = format!("ulimit -v 4000000; {} tour 18 --plain", env!("CARGO_BIN_EXE_gosched"));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    assert!(text.contains("There is not enough memory for 1,000,000 goroutines."), "{text}");
}

#[test]
fn help_shows_an_example() {
    for (arguments, example) in [
        (&["--help"][..], "gosched tour 4"),
        (&["tour", "--help"], "gosched tour 4 --plain"),
        (&["new", "--help"], "gosched new hello"),
    ] {
        let output = gosched(arguments).output().unwrap();
        assert!(output.status.success());
        assert!(stdout(&output).contains(example), "{}", stdout(&output));
    }
}

#[test]
fn a_page_is_one_file_that_needs_no_network() {
    let folder = scratch("page").join("deeper");
    let output = gosched(&["tour", "4", "--html"]).arg(&folder).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let path = folder.join("index.html");
    assert_eq!(stdout(&output), format!("{}: open this file in a browser.\n", path.display()));
    let page = fs::read_to_string(path).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    assert!(!page.contains("http") && !page.contains(" src=") && !page.contains("<link"), "{page}");
    // The global queue after the spill, and what the step says.
    assert!(page.contains(r#""q":[[3,130],[259,259]]"#), "{page}");
    assert!(
        page.contains("The older half of the queue, and G259, go to the global queue."),
        "{page}"
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_at_once() {
    let folder = scratch("unwritable");
    fs::write(folder.join("file"), "").unwrap();
    // Not a folder without write permission: root may write into such a folder.
    for path in [folder.join("file"), folder.join("file/below"), PathBuf::from("/proc/none")] {
        let output = gosched(&["tour", "--html"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{path:?}");
        let expected = format!("gosched: cannot create {}/index.html: ", path.display());
        assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_new_project_names_the_crate_and_has_a_program() {
    let folder = scratch("new").join("hello");
    let output = gosched(&["new"]).arg(&folder).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("cargo run\n"), "{}", stdout(&output));
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"hello\"\n"), "{manifest}");
    assert!(manifest.contains("crates/gosched\" }"), "{manifest}");
    // The folder lies below the workspace of gosched, which must not claim the project.
    assert!(manifest.contains("[workspace]"), "{manifest}");
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version=1"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", stderr(&metadata));
    assert!(stdout(&metadata).contains("\"name\":\"hello\""), "{}", stdout(&metadata));
    let program = fs::read_to_string(folder.join("src/main.rs")).unwrap();
    assert!(program.contains("#[gosched::main]") && program.contains("#[gosched::test]"));

    let again = gosched(&["new"]).arg(&folder).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).ends_with("hello exists: choose another name\n"), "{}", stderr(&again));
    assert_eq!(fs::read_to_string(folder.join("Cargo.toml")).unwrap(), manifest);
}

#[test]
fn bad_names_and_places_of_a_new_project_are_refused() {
    let folder = scratch("bad");
    for (name, why) in [
        ("2x", "cannot name a package: use letters"),
        ("a b", "cannot name a package: use letters"),
        ("fn", "cannot name a package: the word is reserved"),
        ("..", "cannot name a package: use letters"),
    ] {
        let output = gosched(&["new"]).arg(folder.join(name)).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).contains(why), "{name}: {}", stderr(&output));
    }
    let output = gosched(&["new", "--path", "/no/such"]).arg(folder.join("x")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("say where it is, with --path"), "{}", stderr(&output));
    // Not the crate, but its clone.
    let clone = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = gosched(&["new", "--path", clone]).arg(folder.join("x")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("say where it is, with --path"), "{}", stderr(&output));
    fs::write(folder.join("file"), "").unwrap();
    let output = gosched(&["new"]).arg(folder.join("file/x")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot write"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing was made");
}
