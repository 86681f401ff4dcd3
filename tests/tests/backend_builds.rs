//! Programs built in unusual ways: with sanitizers, and with two copies of the crate.
//!
//! Sanitizers need a nightly toolchain. Without one, their tests print a line and are skipped, or
//! fail if `CI` or `GOSCHED_REQUIRE_NIGHTLY` is set.

use gosched_tests as _;
use gosched_tests::golang::build_folder;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the root folder of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns a command for Cargo without the variables that the Cargo running this suite has set.
fn cargo(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_")) {
        command.env_remove(name);
    }
    command.env_remove("RUSTFLAGS").env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

/// Each copy defines functions of libc. Without Cargo's check, the linker would only report a
/// duplicate symbol.
#[test]
fn two_copies_of_the_crate_are_refused_by_cargo() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two_copies");
    let _ = std::fs::remove_dir_all(&folder);
    let (other, program) = (folder.join("other"), folder.join("program"));
    copy(&root().join("crates/fiber"), &other.join("crates/fiber"));
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let older = workspace.replacen("version = \"0.1.0\"", "version = \"0.0.9\"", 1);
    assert_ne!(older, workspace);
    std::fs::write(other.join("Cargo.toml"), older).unwrap();
    let ours = root().canonicalize().unwrap().join("crates/fiber");
    let manifest = format!(
        "[package]\nname = \"two\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\none = {{ package = \"gosched-fiber\", path = {ours:?} }}\n\
         two = {{ package = \"gosched-fiber\", path = \"../other/crates/fiber\" }}\n"
    );
    std::fs::create_dir_all(program.join("src")).unwrap();
    std::fs::write(program.join("src/lib.rs"), "").unwrap();
    std::fs::write(program.join("Cargo.toml"), manifest).unwrap();
    copy(&root().join("Cargo.lock"), &program.join("Cargo.lock"));
    let mut command = cargo(env!("CARGO"));
    command.args(["tree", "--offline", "--manifest-path"]).arg(program.join("Cargo.toml"));
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains("gosched-fiber") && said.contains("links"), "{said}");
}

/// Returns whether a nightly toolchain is installed. Panics if it is missing and required.
fn has_nightly() -> bool {
    let found = cargo("cargo").args(["+nightly", "--version"]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let required = ["CI", "GOSCHED_REQUIRE_NIGHTLY"].into_iter().any(is_set);
        assert!(!required, "no nightly toolchain: run `rustup toolchain install nightly`");
        eprintln!("left out: no nightly toolchain");
    }
    found
}

/// Builds `backend_program` with a sanitizer, and returns its path.
fn build(sanitizer: &str, features: &str) -> PathBuf {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let folder = build_folder().join("sanitizers").join(format!("{sanitizer}-{features}"));
    let mut command = cargo("cargo");
    command.args(["+nightly", "build", "--quiet", "-p", "gosched-tests"]);
    command.args(["--bin", "backend_program", "--target", TARGET, "--features", features]);
    command.arg("--target-dir").arg(&folder);
    // The standard library of the toolchain was built without the sanitizer.
    let flags = format!("-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer");
    let output = command.env("RUSTFLAGS", flags).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    folder.join(TARGET).join("debug/backend_program")
}

/// ThreadSanitizer does not see the fence with which the standard library, which was built without
/// the sanitizer, drops an `Arc`: it takes the end of a thread and the drop of the thread's handle
/// for a race.
const NO_RACES: &str = "race:alloc::sync::Arc<std::thread::lifecycle::Packet\n";

/// Returns a command that runs `program` under its sanitizer.
fn sanitized(program: &Path) -> Command {
    let suppressions = program.with_extension("suppressions");
    std::fs::write(&suppressions, NO_RACES).unwrap();
    let mut command = Command::new(program);
    let options = std::env::var("TSAN_OPTIONS").unwrap_or_default();
    command.env("TSAN_OPTIONS", format!("{options} suppressions={}", suppressions.display()));
    command
}

/// Checks that the program runs its goroutines and ends, and that the sanitizer reports a defect
/// inside a goroutine.
fn runs_and_finds(sanitizer: &str, defect: &str, report: &str) {
    if !has_nightly() {
        return;
    }
    for features in ["", "threads"] {
        let program = build(sanitizer, features);
        let output = sanitized(&program).output().unwrap();
        assert!(output.status.success(), "{features}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "Threads\n");
        let said = stderr(&output);
        let lines = said.lines().filter(|line| line.starts_with("runtime: ")).count();
        assert_eq!(lines, usize::from(features.is_empty()), "{features}: {said}");
        assert!(features == "threads" || said.contains("a build without a sanitizer"), "{said}");

        let output = sanitized(&program).arg(defect).output().unwrap();
        assert!(!output.status.success(), "{features}: {output:?}");
        assert!(stderr(&output).contains(report), "{features}: {output:?}");
    }
}

#[test]
fn a_program_under_thread_sanitizer_runs_and_its_races_are_found() {
    runs_and_finds("thread", "race", "WARNING: ThreadSanitizer: data race");
}

#[test]
fn a_program_under_address_sanitizer_runs_and_its_mistakes_are_found() {
    runs_and_finds("address", "use after free", "AddressSanitizer: heap-use-after-free");
}
