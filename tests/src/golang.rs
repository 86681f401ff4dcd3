//! The Go programs of `tests/go`. Their output is the reference for ours.
//!
//! Without an installed Go, a test prints that it is left out and passes; if `CI` or
//! `GOSCHED_REQUIRE_GO` is set, it fails. `ci/go` installs Go and prints the path for `GOSCHED_GO`.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// The Go release whose output ours is compared with.
const RELEASE: &str = "1.27";
/// The path below the cache folder where `ci/go` installs that release.
const INSTALLED: &str = "gosched/go-1.27.3/bin/go";
/// Environment variables that change the output of a Go program or of ours.
const CLEARED: [&str; 6] =
    ["GODEBUG", "GOTRACEBACK", "GOGC", "GOMAXPROCS", "GOSCHED_SEED", "GOSCHED_PREEMPT"];

/// A built program of `tests/go`.
#[derive(Debug)]
pub struct GoProgram(PathBuf);

impl GoProgram {
    /// Builds `tests/go/name.go`, once per process. Returns `None` if Go is neither installed nor
    /// required.
    ///
    /// # Panics
    /// The program cannot be built, or Go is required and missing.
    pub fn new(name: &str) -> Option<GoProgram> {
        static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
        let go = go_command()?;
        let mut built = BUILT.lock().expect("nobody panics with it");
        if let Some(program) = built.get(name) {
            return Some(GoProgram(program.clone()));
        }
        let program = build(go, name);
        drop(built.insert(name.to_owned(), program.clone()));
        Some(GoProgram(program))
    }

    /// Returns a command that runs the program with these arguments on two Ps.
    pub fn command(&self, arguments: &[&str]) -> Command {
        clean_command(&self.0, arguments)
    }
}

/// Returns a command that runs `program` with these arguments on two Ps. Neither the test's
/// environment variables nor the shell that started the test change what the program prints.
pub fn clean_command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for name in CLEARED {
        command.env_remove(name);
    }
    command.env("GOMAXPROCS", "2");
    // SAFETY: the function calls only async-signal-safe functions.
    unsafe { command.pre_exec(restore_keyboard_signals) };
    command
}

/// Restores the default actions of SIGINT and SIGQUIT. A shell that runs `cargo test &` in a script
/// ignores both signals, and child processes inherit that.
fn restore_keyboard_signals() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the default action is always valid.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// Returns the path of the `go` command. Searches for it once.
fn go_command() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(find).as_deref();
    if found.is_none() {
        let required = ["CI", "GOSCHED_REQUIRE_GO"].iter().any(|name| is_set(name));
        assert!(!required, "no Go {RELEASE}: run ci/go, and set GOSCHED_GO to the path it prints");
        eprintln!("left out: no Go {RELEASE} (ci/go installs it)");
    }
    found
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("GOSCHED_GO") {
        let named = PathBuf::from(named);
        let fits = is_release(&named);
        assert!(fits, "GOSCHED_GO is {}, which is not Go {RELEASE}", named.display());
        return Some(named);
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let installed = cache.map(|cache| cache.join(INSTALLED));
    let candidates = installed.into_iter().chain([PathBuf::from("go")]);
    candidates.into_iter().find(|candidate| is_release(candidate))
}

fn is_release(go: &Path) -> bool {
    let output = Command::new(go).arg("version").env("GOTOOLCHAIN", "local").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.is_ok_and(|text| text.starts_with(&format!("go version go{RELEASE}")))
}

/// Builds the program below the target folder, without network access.
fn build(go: &Path, name: &str) -> PathBuf {
    let folder = build_folder().join("go");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(format!("{name}.go"));
    // Another process may build the same program: the final name always refers to a complete file.
    let unfinished = folder.join(format!("{name}.{}", std::process::id()));
    let mut command = Command::new(go);
    command.args(["build", "-o"]).arg(&unfinished).arg(&source);
    for (variable, value) in [
        ("GOCACHE", folder.join("cache")),
        ("GOPATH", folder.join("path")),
        ("GOTOOLCHAIN", "local".into()),
        ("GOPROXY", "off".into()),
        ("GOENV", "off".into()),
        ("GOWORK", "off".into()),
        ("GOFLAGS", "".into()),
        ("CGO_ENABLED", "0".into()),
    ] {
        command.env(variable, value);
    }
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", go.display()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go build {}: {said}", source.display());
    let program = folder.join(name);
    let renamed = std::fs::rename(&unfinished, &program);
    renamed.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    program
}

/// Returns the folder for programs that tests build: the folder that contains this suite, such as
/// `target/debug`.
///
/// # Panics
/// This binary is not in a target folder of Cargo's.
pub fn build_folder() -> PathBuf {
    let suite = std::env::current_exe().expect("this binary");
    let folder = suite.parent().filter(|folder| folder.ends_with("deps")).and_then(Path::parent);
    folder.expect("a suite that Cargo built").to_owned()
}
