//! Dumps of programs that are stripped, built without debug information, or built to abort on
//! panic. A dump shows fewer names in such a program, but always what each goroutine waits for.

use gosched_tests::golang::{build_folder, clean_command};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a copy of the program from which `strip` has removed parts, as Cargo's `strip` setting
/// does.
fn stripped(name: &str, argument: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("observe_program_{name}_{}", std::process::id()));
    let mut command = Command::new("strip");
    command.args([argument, "-o"]).arg(&program).arg(env!("CARGO_BIN_EXE_observe_program"));
    succeed(&mut command);
    program
}

/// Builds the program again with this profile, in a separate target folder.
fn build(profile: &str, setting: &str) -> PathBuf {
    let folder = build_folder().join("observe");
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "-p", "gosched-tests", "--bin", "observe_program"]);
    command.args(["--profile", profile, "--config", setting, "--target-dir"]).arg(&folder);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_")) {
        command.env_remove(name);
    }
    command.env_remove("RUSTFLAGS");
    succeed(&mut command);
    folder.join(profile).join("observe_program")
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

fn dump(program: &Path) -> String {
    let output = clean_command(program, &["small"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the blocks of a dump, each as its header and its frames without their source positions.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    text.split("\n\n")
        .map(|block| {
            let (header, rest) = block.split_once('\n').unwrap_or((block, ""));
            let frames = rest.lines().take_while(|line| !line.starts_with("created by "));
            (header, frames.filter(|line| !line.starts_with('\t')).collect())
        })
        .collect()
}

/// Minimum number of frames of each waiting goroutine.
const OUTER: usize = 3;

/// Checks what every dump of this program contains: main, and three goroutines that wait at the
/// same line.
fn check(text: &str) {
    let blocks = blocks(text);
    assert_eq!(blocks.len(), 4, "{text}");
    assert!(blocks[0].0.ends_with(" [running]:"), "{text}");
    let waiting = &blocks[1..];
    // The outermost frames are the receive, the goroutine's function, and the function that starts
    // it. They are equal for all goroutines; inner frames depend on how each goroutine was switched
    // out.
    let outer = |frames: &[&str]| frames.iter().rev().take(OUTER).map(|f| f.to_string()).collect();
    let expected: Vec<String> = outer(&waiting[0].1);
    for (header, frames) in waiting {
        assert!(header.starts_with("goroutine "), "{text}");
        assert!(header.ends_with(" [chan receive]:"), "{text}");
        assert!(frames.len() >= OUTER, "{text}");
        assert_eq!(outer(frames), expected, "they wait at the same place\n{text}");
        assert!(frames.iter().all(|frame| frame.ends_with(')')), "{text}");
    }
    let places = text.lines().filter(|line| line.starts_with("created by ")).count();
    assert!(places >= 3, "where they were started is known without debug information\n{text}");
    assert!(text.contains("many.rs:"), "{text}");
}

#[test]
fn a_dump_without_debug_information_shows_function_names() {
    let program = stripped("without_debug", "--strip-debug");
    let text = dump(&program);
    std::fs::remove_file(program).unwrap();
    check(&text);
    let found = text.matches("::one_of_few").count();
    assert!(found >= 3, "the symbols are there\n{text}");
}

#[test]
fn a_dump_of_a_stripped_program_shows_headers_and_addresses() {
    let program = stripped("without_symbols", "--strip-all");
    let text = dump(&program);
    std::fs::remove_file(program).unwrap();
    check(&text);
    assert!(!text.contains("one_of_few("), "it is stripped\n{text}");
    let (_, frames) = &blocks(&text)[1];
    let addresses = frames.iter().filter(|frame| frame.contains("0x"));
    assert!(addresses.count() >= 4, "what has no name has its address\n{text}");
}

#[test]
fn a_program_built_with_panic_abort_has_complete_dumps() {
    // With `opt-level` 1 the build is faster than a release build and inlines enough for this test.
    let text = dump(&build("abort", "profile.abort.opt-level=1"));
    check(&text);
    assert!(text.contains("one_of_few("), "{text}");
}
