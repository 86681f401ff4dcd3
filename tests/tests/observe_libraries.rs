//! Function names in libraries that are loaded, unloaded and replaced: a frame is shown with the
//! name from its own library or with none. The program is `src/bin/observe_program`, linked with
//! libc as a shared library.
#![cfg(not(target_feature = "crt-static"))]

use gosched_tests::children;
use gosched_tests::dumps::{self, DumpedGoroutine, Frame};
use gosched_tests::golang::clean_command;
use gosched_tests::shared_library;
use gosched_tests::wait;
use std::path::{Path, PathBuf};

const SOURCE: &str = include_str!("../c/named.c");

/// Builds a library with an exported function, `NAME_function`, and a hidden function,
/// `NAME_hidden`.
fn build(name: &'static str, arguments: &[&str]) -> PathBuf {
    let stem = name.split('_').next().unwrap();
    let names = [format!("-DFUNCTION={stem}_function"), format!("-DHIDDEN={stem}_hidden")];
    let arguments: Vec<&str> =
        names.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    shared_library::build_as("named", name, folder, &arguments)
}

/// Loads the libraries one after the other and returns the goroutine that waits in each, and the
/// number of different addresses at which they were loaded. Each library is given as its path, its
/// function, and the file that replaces it while it is loaded.
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

/// Returns the two frames that called the waiting function: the hidden and the exported function of
/// the library.
fn callers(block: &DumpedGoroutine) -> &[Frame] {
    let at = block.frames.iter().position(|frame| frame.is_call_of("waits_in_library")).unwrap();
    &block.frames[at + 1..at + 3]
}

fn names(block: &DumpedGoroutine) -> [&str; 2] {
    [callers(block)[0].function.as_str(), callers(block)[1].function.as_str()]
}

#[test]
fn functions_of_a_library_loaded_in_place_of_another_have_their_own_names() {
    let (alpha, beta) = (build("alpha", &["-g"]), build("beta", &["-g"]));
    let (alpha, beta) =
        ((alpha.as_path(), "alpha_function", ""), (beta.as_path(), "beta_function", ""));
    // The test needs all libraries at the same address. The kernel may place another mapping there
    // in between.
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
fn names_come_from_symbols_if_there_is_no_debug_information() {
    let gamma = build("gamma", &[]);
    let (blocks, _) = seen(&[(&gamma, "gamma_function", "")]);
    assert_eq!(names(&blocks[0]), ["gamma_hidden", "gamma_function"]);
    assert_eq!(callers(&blocks[0])[0].place, None);
}

#[test]
fn a_hidden_function_of_an_unverified_file_is_shown_as_an_offset() {
    // Without a build id nothing proves that the file is the loaded library. Names of exported
    // functions are read from memory.
    let nameless = build("delta_nameless", &["-g", "-Wl,--build-id=none"]);
    let (blocks, _) = seen(&[(&nameless, "delta_function", "")]);
    let [hidden, function] = names(&blocks[0]);
    let file = nameless.file_name().unwrap().to_str().unwrap();
    assert!(hidden.starts_with(&format!("{file}+0x")), "{hidden}");
    assert_eq!(function, "delta_function");

    // The file is replaced by a library in which all functions have the same addresses.
    let (old, new) = (build("epsilon", &["-g"]), build("zeta", &["-g"]));
    let (blocks, _) = seen(&[(&old, "epsilon_function", new.to_str().unwrap())]);
    let [hidden, function] = names(&blocks[0]);
    let file = old.file_name().unwrap().to_str().unwrap();
    assert!(hidden.starts_with(&format!("{file}+0x")), "{hidden}");
    assert_eq!(function, "epsilon_function");
}
