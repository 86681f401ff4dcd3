//! Names of code in libraries that come, go, and are replaced: of that library, or none. The program is
//! `src/bin/observe_program`, built with libc as a library.
#![cfg(not(target_feature = "crt-static"))]

use gosched_tests::children;
use gosched_tests::dumps::{self, DumpedGoroutine, Frame};
use gosched_tests::golang::clean_command;
use gosched_tests::shared_library;
use gosched_tests::wait;
use std::path::{Path, PathBuf};

const SOURCE: &str = include_str!("../c/named.c");

/// A library with a function that others may call, `NAME_function`, and one that they may not.
fn build(name: &'static str, arguments: &[&str]) -> PathBuf {
    let stem = name.split('_').next().unwrap();
    let names = [format!("-DFUNCTION={stem}_function"), format!("-DHIDDEN={stem}_hidden")];
    let arguments: Vec<&str> =
        names.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    shared_library::build_as("named", name, folder, &arguments)
}

/// The goroutine in each library, one after the other, and how many places they were at. What each is: the library,
/// its function, and what its file is replaced by.
fn seen(libraries: &[(&Path, &str, &str)]) -> (Vec<DumpedGoroutine>, usize) {
    let mut arguments = vec!["libraries"];
    for (path, function, other) in libraries {
        arguments.extend([path.to_str().unwrap(), function, other]);
    }
    let program = Path::new(env!("CARGO_BIN_EXE_observe_program"));
    let output = clean_command(program, &arguments).output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, children::stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (dumps, places) = text.rsplit_once("\n=====\n").unwrap();
    let block = |text: &str| {
        let blocks = dumps::parse(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        blocks.into_iter().find(|block| block.frame("waits_in_library").is_some()).unwrap()
    };
    let places = places.split(' ').next().unwrap().parse().unwrap();
    (dumps.split("\n=====\n").map(block).collect(), places)
}

/// The functions that called the one which waits, up to the program's closure.
fn callers(block: &DumpedGoroutine) -> &[Frame] {
    let at = block.frames.iter().position(|frame| frame.is_call_of("waits_in_library")).unwrap();
    &block.frames[at + 1..at + 3]
}

fn names(block: &DumpedGoroutine) -> [&str; 2] {
    [callers(block)[0].function.as_str(), callers(block)[1].function.as_str()]
}

#[test]
fn functions_of_a_library_that_replaces_another_have_their_own_names() {
    let (alpha, beta) = (build("alpha", &["-g"]), build("beta", &["-g"]));
    let (alpha, beta) =
        ((alpha.as_path(), "alpha_function", ""), (beta.as_path(), "beta_function", ""));
    // At the same place, so that this shows anything: unless the kernel put something else there meanwhile.
    let blocks = wait::retry(|| {
        let (blocks, places) = seen(&[alpha, beta, alpha]);
        if places == 1 { Ok(blocks) } else { Err(format!("{places} places")) }
    });
    for (block, stem) in blocks.iter().zip(["alpha", "beta", "alpha"]) {
        assert_eq!(
            names(block),
            [format!("{stem}_hidden"), format!("{stem}_function")],
            "{block:#?}"
        );
        let line =
            SOURCE.lines().zip(1..).find(|(line, _)| line.ends_with("HERE hidden */")).unwrap().1;
        let (file, at) = callers(block)[0].place.as_ref().unwrap();
        assert!(file.ends_with("named.c"), "{file}");
        assert_eq!(*at, line);
    }
}

#[test]
fn without_debug_information_symbols_have_the_names() {
    let gamma = build("gamma", &[]);
    let (blocks, _) = seen(&[(&gamma, "gamma_function", "")]);
    assert_eq!(names(&blocks[0]), ["gamma_hidden", "gamma_function"]);
    assert_eq!(callers(&blocks[0])[0].place, None);
}

#[test]
fn what_is_not_certain_has_no_name() {
    // Nothing says that a file is the library's; what others may call is in memory.
    let nameless = build("delta_nameless", &["-g", "-Wl,--build-id=none"]);
    let (blocks, _) = seen(&[(&nameless, "delta_function", "")]);
    let [hidden, function] = names(&blocks[0]);
    let file = nameless.file_name().unwrap().to_str().unwrap();
    assert!(hidden.starts_with(&format!("{file}+0x")), "{hidden}");
    assert_eq!(function, "delta_function");

    // The file is another by now, in which everything is at the same place.
    let (old, new) = (build("epsilon", &["-g"]), build("zeta", &["-g"]));
    let (blocks, _) = seen(&[(&old, "epsilon_function", new.to_str().unwrap())]);
    let [hidden, function] = names(&blocks[0]);
    let file = old.file_name().unwrap().to_str().unwrap();
    assert!(hidden.starts_with(&format!("{file}+0x")), "{hidden}");
    assert_eq!(function, "epsilon_function");
}
