//! The backend of a process: whether allocators, loaders and a full standard error change it, and
//! whether the program and its user are informed.

use gosched::go;
use gosched::runtime::{Backend, backend};
use gosched_tests::children;
use std::process::{Command, Output};

/// The backend of a process in which nothing forces the fallback to threads.
const CHOSEN: Backend =
    if cfg!(feature = "threads") { Backend::Threads } else { Backend::MultiThread };

#[test]
fn child() {
    match children::scenario().as_deref() {
        None => {}
        Some("chosen") => {
            go(|| ()).join().unwrap();
            assert_eq!(backend(), CHOSEN);
            let recording = gosched::debug::events::start().map(|mut recording| recording.stop());
            match CHOSEN {
                Backend::MultiThread => drop(recording.unwrap()),
                _ => assert_eq!(recording.unwrap_err().kind(), std::io::ErrorKind::Unsupported),
            }
        }
        Some("no room") => goroutines_without_room_are_refused(),
        Some("keyed malloc") => dynamic::with_keyed_malloc(),
        Some(other) => panic!("no scenario {other}"),
    }
}

/// Returns the lines that the runtime printed on standard error.
fn lines_of_the_runtime(output: &Output) -> Vec<String> {
    let text = children::stderr(output);
    text.lines().filter(|line| line.starts_with("runtime: ")).map(str::to_owned).collect()
}

#[test]
fn the_chosen_backend_prints_no_message() {
    let output = children::run("chosen");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines_of_the_runtime(&output), Vec::<String>::new());
}

/// A goroutine that is preempted inside the allocator holds the lock that new threads need. It
/// keeps its thread, so it still makes progress.
#[test]
fn a_program_with_its_own_allocator_ends_even_with_short_time_slices() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_own_allocator_program"));
    let output = command.env("GOSCHED_SLICE", "100us").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{CHOSEN:?}\n"));
}

/// With the `threads` backend, starting a goroutine fails if the system has no room for its thread.
/// Otherwise a panic in std, outside the code that catches panics, would end the process.
#[test]
#[cfg(feature = "threads")]
fn starting_a_goroutine_fails_when_the_system_has_no_room_for_its_thread() {
    let output = children::run("no room");
    assert!(output.status.success(), "{}", children::stderr(&output));
}

/// Leaves enough mappings for a few hundred threads only, and starts goroutines until one is
/// refused.
fn goroutines_without_room_are_refused() {
    const LEFT: usize = 2500;
    const PAGE: usize = 4096;
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let used = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let pages = limit - used - LEFT;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address that the system chooses.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // Adjacent pages with different protections are separate mappings.
    for page in (0..pages).step_by(2) {
        let page = start.wrapping_byte_add(page * PAGE);
        // SAFETY: a page of the mapping above.
        assert_eq!(unsafe { libc::mprotect(page, PAGE, libc::PROT_READ) }, 0);
    }
    let (sender, receiver) = gosched::chan::<()>(0);
    let mut handles = Vec::new();
    let refused = loop {
        let receiver = receiver.clone();
        match gosched::Builder::new().go(move || receiver.recv().is_err()) {
            Ok(handle) => handles.push(handle),
            Err(why) => break why.to_string(),
        }
    };
    assert!(refused.contains("vm.max_map_count"), "{refused}");
    drop(sender);
    assert!(handles.into_iter().all(|handle| handle.join().unwrap()));
}

/// A program that links libc statically loads no libraries.
#[cfg(target_feature = "crt-static")]
mod dynamic {
    pub(super) fn with_keyed_malloc() {}
}

#[cfg(not(target_feature = "crt-static"))]
mod dynamic {
    use super::*;
    use gosched_tests::{shared_library, wait};
    use std::ffi::{CStr, c_long};
    use std::path::{Path, PathBuf};

    fn directory() -> &'static Path {
        Path::new(env!("CARGO_TARGET_TMPDIR"))
    }

    /// Returns the path of the library built from `tests/cdylib`, in the folder of this suite's
    /// program.
    fn library() -> PathBuf {
        let suite = std::env::current_exe().unwrap();
        let library = suite.with_file_name("libgosched_tests_cdylib.so");
        assert!(library.exists(), "{}", library.display());
        library
    }

    #[test]
    fn an_allocator_that_sets_pthread_keys_does_not_change_the_backend() {
        let allocator = shared_library::build("keyed_malloc", directory(), &[]);
        let dynamic = shared_library::build("dynamic", directory(), &[]);
        let mut command = children::command("keyed malloc");
        command.env("LD_PRELOAD", allocator).env(DYNAMIC, dynamic);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", children::stderr(&output));
        assert_eq!(lines_of_the_runtime(&output), Vec::<String>::new());
    }

    /// The environment variable with the path of a library whose thread-locals are allocated on
    /// first use.
    const DYNAMIC: &str = "GOSCHED_TEST_DYNAMIC";

    /// Calls a function of a loaded library.
    fn call<R>(name: &CStr) -> R {
        // SAFETY: looks up a name, which is a C string.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?}");
        // SAFETY: the function belongs to this suite, takes no arguments and returns an `R`.
        let function =
            unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> R>(at) };
        function()
    }

    pub(super) fn with_keyed_malloc() {
        assert_eq!(backend(), CHOSEN);
        let dynamic = std::ffi::CString::new(std::env::var(DYNAMIC).unwrap()).unwrap();
        // SAFETY: the library belongs to this suite, and has no constructors.
        let library = unsafe { libc::dlopen(dynamic.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!library.is_null());
        for _ in 0..10 {
            let handles: Vec<_> = (0..100).map(|_| go(allocate_as_c_code)).collect();
            for handle in handles {
                handle.join().unwrap();
            }
        }
        assert_eq!(call::<c_long>(c"keyed_malloc_strangers"), 0);
        let made = call::<c_long>(c"keyed_malloc_made");
        assert!(made >= 1000, "{made}: each goroutine has a state of its own");
        if cfg!(feature = "threads") {
            return; // libc itself frees memory after the destructors of keys
        }
        // The states of threads remain; there are fewer threads than there were goroutines.
        wait::until("the states of goroutines that ended are destroyed", || {
            let made = call::<c_long>(c"keyed_malloc_made");
            made - call::<c_long>(c"keyed_malloc_destroyed") < 200
        });
    }

    fn allocate_as_c_code() {
        // SAFETY: any size is valid.
        let memory = unsafe { libc::malloc(100) };
        assert_eq!(call::<i32>(c"dynamic_count"), 42);
        gosched::yield_now();
        assert_eq!(call::<i32>(c"dynamic_count"), 43);
        // SAFETY: allocated above.
        unsafe { libc::free(memory) };
    }

    /// Runs a program that loads the library. Returns the exit code, which stands for the backend,
    /// and the output.
    fn run(command: &mut Command) -> (Option<i32>, Output) {
        let output = command.output().unwrap();
        (output.status.code(), output)
    }

    const THREADS: Option<i32> = Some(2);

    fn loading_program() -> Command {
        static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
        let build = || shared_library::build_program("loads", "loads", directory(), &["-ldl"]);
        let mut command = Command::new(PROGRAM.get_or_init(build));
        command.arg(library());
        command
    }

    #[test]
    fn a_library_loaded_by_dlopen_falls_back_to_threads_and_prints_the_reason() {
        let (code, output) = run(&mut loading_program());
        assert_eq!(code, THREADS, "{output:?}");
        let lines = lines_of_the_runtime(&output);
        if cfg!(feature = "threads") {
            assert_eq!(lines, Vec::<String>::new(), "threads were chosen");
            return;
        }
        assert_eq!(lines.len(), 1, "{lines:?}");
        let remedy = format!("LD_PRELOAD={}", library().display());
        for part in ["goroutines are OS threads", "loaded by dlopen", &remedy, "memory"] {
            assert!(lines[0].contains(part), "{part}: {}", lines[0]);
        }
    }

    #[test]
    fn a_fallback_whose_message_cannot_be_written_is_no_failure() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, output) = run(loading_program().stderr(std::process::Stdio::from(full)));
        assert_eq!(code, THREADS, "{output:?}");
    }

    #[test]
    #[cfg(not(feature = "threads"))]
    fn a_preloaded_or_linked_library_uses_the_multi_thread_backend() {
        const MULTI_THREAD: Option<i32> = Some(1);
        let (code, output) = run(loading_program().env("LD_PRELOAD", library()));
        assert_eq!(code, MULTI_THREAD, "{output:?}");
        assert_eq!(lines_of_the_runtime(&output), Vec::<String>::new());

        let library = library();
        let arguments = ["-Wl,--no-as-needed", library.to_str().unwrap(), "-ldl"];
        let linked = shared_library::build_program("loads", "linked", directory(), &arguments);
        let (code, output) = run(&mut Command::new(linked));
        assert_eq!(code, MULTI_THREAD, "{output:?}");
        assert_eq!(lines_of_the_runtime(&output), Vec::<String>::new());
    }
}
