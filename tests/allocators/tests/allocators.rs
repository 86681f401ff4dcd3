//! Allocators that keep state for each thread, under a pthread key or in a thread-local. With each
//! of these allocators, goroutines move between threads and the program exits cleanly.
//!
//! The allocators loaded by `LD_PRELOAD` are Debian packages, which `ci/packages` installs.

use std::path::Path;
use std::process::Command;

fn goroutines_move(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {:?} {said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "MultiThread\n", "{command:?}: {said}");
    assert!(!said.contains("runtime: "), "{command:?}: {said}");
}

#[test]
fn goroutines_move_with_jemalloc_as_the_global_allocator() {
    goroutines_move(&mut Command::new(env!("CARGO_BIN_EXE_jemalloc")));
}

#[test]
fn goroutines_move_with_mimalloc_as_the_global_allocator() {
    goroutines_move(&mut Command::new(env!("CARGO_BIN_EXE_mimalloc")));
}

/// Runs the program with the system's allocator replaced by a library of a Debian package.
fn goroutines_move_with(library: &str) {
    let library = Path::new("/usr/lib/x86_64-linux-gnu").join(library);
    assert!(library.exists(), "no {}: run ci/packages", library.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_system"));
    goroutines_move(command.env("LD_PRELOAD", library));
}

#[test]
fn goroutines_move_with_jemalloc_preloaded() {
    goroutines_move_with("libjemalloc.so.2");
}

#[test]
fn goroutines_move_with_mimalloc_preloaded() {
    goroutines_move_with("libmimalloc.so.2.0");
}

#[test]
fn goroutines_move_with_tcmalloc_preloaded() {
    goroutines_move_with("libtcmalloc_minimal.so.4");
}
