//! Libraries and programs of C that a suite builds while it runs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Compiles `c/NAME.c` to a library in `directory`, once per process, with further arguments.
///
/// # Panics
/// The compiler refuses.
pub fn build(name: &'static str, directory: &Path, arguments: &[&str]) -> PathBuf {
    build_as(name, name, directory, arguments)
}

/// As [`build`], of `c/SOURCE.c`.
///
/// # Panics
/// The compiler refuses.
pub fn build_as(source: &str, name: &'static str, directory: &Path, arguments: &[&str]) -> PathBuf {
    static BUILT: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    let library = directory.join(format!("lib{name}-{}.so", std::process::id()));
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap();
    if built.insert(name) {
        compile(source, &library, &[&["-shared", "-fPIC"], arguments].concat());
    }
    library
}

/// Compiles `c/SOURCE.c` to a program in `directory`, with further arguments.
///
/// # Panics
/// The compiler refuses.
pub fn build_program(source: &str, name: &str, directory: &Path, arguments: &[&str]) -> PathBuf {
    let program = directory.join(format!("{name}-{}", std::process::id()));
    compile(source, &program, arguments);
    program
}

/// `arguments` come after the source file, where libraries are named.
fn compile(source: &str, output: &Path, arguments: &[&str]) {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("c").join(format!("{source}.c"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-O1", "-o"]).arg(output).arg(source).args(arguments);
    assert!(command.status().unwrap().success(), "{command:?}");
}
