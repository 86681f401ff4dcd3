//! C libraries and programs that a suite compiles at run time.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Compiles `c/NAME.c` to a shared library in `directory`, once per process, with additional
/// compiler arguments. Returns the path of the library.
///
/// # Panics
/// The compiler fails.
pub fn build(name: &'static str, directory: &Path, arguments: &[&str]) -> PathBuf {
    build_as(name, name, directory, arguments)
}

/// Compiles `c/SOURCE.c` to a shared library called `name`, as [`build`] does.
///
/// # Panics
/// The compiler fails.
pub fn build_as(source: &str, name: &'static str, directory: &Path, arguments: &[&str]) -> PathBuf {
    static BUILT: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    let library = directory.join(format!("lib{name}-{}.so", std::process::id()));
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap();
    if built.insert(name) {
        compile(source, &library, &[&["-shared", "-fPIC"], arguments].concat());
    }
    library
}

/// Compiles `c/SOURCE.c` to a program in `directory`, with additional compiler arguments. Returns
/// the path of the program.
///
/// # Panics
/// The compiler fails.
pub fn build_program(source: &str, name: &str, directory: &Path, arguments: &[&str]) -> PathBuf {
    let program = directory.join(format!("{name}-{}", std::process::id()));
    compile(source, &program, arguments);
    program
}

/// Compiles `c/SOURCE.c`. `arguments` follow the source file, because the linker expects libraries
/// there.
fn compile(source: &str, output: &Path, arguments: &[&str]) {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("c").join(format!("{source}.c"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-O1", "-o"]).arg(output).arg(source).args(arguments);
    assert!(command.status().unwrap().success(), "{command:?}");
}
