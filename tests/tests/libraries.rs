//! Libraries with thread-locals, loaded while goroutines run: both ways such variables are found.
//!
//! The libraries are built here with `cc`. A program with libc linked in loads none.
#![cfg(not(target_feature = "crt-static"))]

use gosched_context::{Routine, Size, suspend};
use gosched_tests::runner::run_all;
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Compiles `c/NAME.c` to a library, once per process.
fn build(name: &'static str) -> PathBuf {
    build_with(name, &[])
}

/// As [`build`], with further arguments.
fn build_with(name: &'static str, arguments: &[&str]) -> PathBuf {
    gosched_tests::shared_library::build(name, Path::new(env!("CARGO_TARGET_TMPDIR")), arguments)
}

/// `function` of the library at `path` counts up a variable that starts at `first`: in goroutines
/// that lived before it was loaded, and in those that come after, on slots used before.
fn counts_from(path: &Path, function: &'static CStr, first: i32) {
    let path = Arc::new(path.to_owned());
    let loaded = Arc::new(AtomicBool::new(false));
    for round in 0..3 {
        let (path, loaded) = (path.clone(), loaded.clone());
        run_all(4, 16, move |number| {
            while number != 0 && !loaded.load(Ordering::Acquire) {
                suspend();
            }
            let library = Library::open(&path);
            loaded.store(true, Ordering::Release);
            for step in 1..20 {
                assert_eq!(library.call(function), first + step, "round {round} of {function:?}");
                suspend();
            }
        });
    }
}

struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Library {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: our own library; its constructor only reads a variable.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{:?}", error());
        Library(handle)
    }

    fn close(self) {
        // SAFETY: nothing of the library is used after this.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }

    fn address(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a look-up by name in a library that is open.
        let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?}");
        at
    }

    fn call(&self, name: &CStr) -> i32 {
        // SAFETY: the functions asked for by this name take nothing and return an int.
        let f = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(self.address(name))
        };
        f()
    }

    fn pointer(&self, name: &CStr) -> usize {
        // SAFETY: the functions asked for by this name take nothing and return a pointer.
        let f = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn() -> usize>(self.address(name))
        };
        f()
    }
}

fn error() -> Option<String> {
    // SAFETY: dlerror has no precondition.
    let text = unsafe { libc::dlerror() };
    // SAFETY: a string until the next such call.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[test]
fn dynamic_thread_locals_are_each_goroutines_own_and_fresh() {
    let path = Arc::new(build("dynamic"));
    let addresses = Arc::new(Mutex::new(HashSet::new()));
    // Rounds, so that slots are used again.
    for round in 0..4 {
        let (path, addresses) = (path.clone(), addresses.clone());
        run_all(4, 32, move |number| {
            let library = Library::open(&path);
            let address = library.pointer(c"dynamic_address");
            for step in 0..50 {
                assert_eq!(library.call(c"dynamic_count"), 42 + step, "{round} {number}");
                suspend();
                assert_eq!(library.pointer(c"dynamic_address"), address);
            }
            addresses.lock().unwrap().insert(address);
        });
    }
    assert!(addresses.lock().unwrap().len() >= 32, "different goroutines, different variables");
}

#[test]
fn static_thread_locals_of_a_library_loaded_later_are_initialised_everywhere() {
    static LOADED: AtomicBool = AtomicBool::new(false);
    let path = Arc::new(build("fixed"));
    for round in 0..4 {
        let path = path.clone();
        run_all(4, 32, move |number| {
            // All but one are alive before the library is loaded.
            while number != 0 && !LOADED.load(Ordering::Acquire) {
                suspend();
            }
            let library = Library::open(&path);
            LOADED.store(true, Ordering::Release);
            let address = library.pointer(c"fixed_address");
            for step in 0..50 {
                assert_eq!(library.call(c"fixed_count"), 78 + step, "{round} {number}");
                suspend();
                assert_eq!(library.pointer(c"fixed_address"), address);
            }
            assert_eq!(library.call(c"fixed_constructor_saw"), 77, "its constructor");
        });
    }
}

#[test]
fn a_library_loaded_by_a_thread_reaches_goroutines_too() {
    let path = build("late");
    let mut waiting = Routine::new(Size::from_environment().unwrap(), move || {
        suspend();
        let library = Library::open(&build("late"));
        (library.call(c"late_count"), library.call(c"late_count"))
    });
    waiting.resume().unwrap();
    let library = Library::open(&path);
    assert_eq!(library.call(c"late_count"), 1235);
    waiting.resume().unwrap();
    assert_eq!(waiting.into_result().unwrap().unwrap(), (1235, 1236));
}

#[test]
fn a_failing_load_tells_the_goroutine_why() {
    run_all(2, 8, |number| {
        assert_eq!(error(), None);
        let path = CString::new(format!("/nonexistent/lib{number}.so")).unwrap();
        // SAFETY: there is no such library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(handle.is_null());
        suspend();
        let text = error().unwrap();
        assert!(text.contains(&format!("lib{number}.so")), "{text}");
        assert_eq!(error(), None, "told once");
    });
}

#[test]
fn loading_unloading_and_short_goroutines_at_once() {
    let path = Arc::new(build("dynamic"));
    let late = Arc::new(build("late"));
    run_all(4, 400, move |number| {
        if number % 10 == 0 {
            let library = Library::open(if number % 20 == 0 { &path } else { &late });
            suspend();
            // SAFETY: nothing of the library is used after this.
            unsafe { libc::dlclose(library.0) };
        }
        suspend();
    });
}

#[test]
fn static_thread_locals_that_are_not_marked_as_such_are_found() {
    counts_from(&build_with("descriptor", &["-mtls-dialect=gnu2"]), c"descriptor_count", 77);
    let base = build("base");
    let dependent = build_with("dependent", &[base.to_str().unwrap()]);
    counts_from(&dependent, c"dependent_count", 55);
}

#[test]
fn a_library_that_comes_again_starts_again() {
    let path = build("again");
    let mut routine = Routine::new(Size::from_environment().unwrap(), move || {
        let mut counts = Vec::new();
        for _ in 0..3 {
            let library = Library::open(&path);
            counts.push((library.call(c"again_count"), library.call(c"again_count")));
            library.close();
            suspend();
        }
        counts
    });
    while routine.resume().unwrap() == gosched_context::Status::Suspended {}
    assert_eq!(routine.into_result().unwrap().unwrap(), [(43, 44); 3]);
}

#[test]
fn a_library_that_loads_another_when_it_is_unloaded_does_not_hang() {
    let path = Arc::new(build("closing"));
    run_all(2, 4, move |_| {
        for _ in 0..5 {
            let library = Library::open(&path);
            assert_eq!(library.call(c"closing_touch"), 1);
            suspend();
            library.close();
        }
    });
}

#[test]
fn what_came_by_another_way_is_not_started_again() {
    let path = build("spaced");
    let other = build("unrelated");
    let mut routine = Routine::new(Size::from_environment().unwrap(), move || {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: our own library, which needs no other; it has a name space of its own.
        let handle = unsafe { libc::dlmopen(-1, path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{:?}", error());
        let library = Library(handle);
        let first = library.call(c"spaced_count");
        let _other = Library::open(&other);
        (first, library.call(c"spaced_count"))
    });
    routine.resume().unwrap();
    assert_eq!(routine.into_result().unwrap().unwrap(), (901, 902));
}

#[test]
fn an_error_is_forgotten_by_the_next_success() {
    let path = Arc::new(build("dynamic"));
    run_all(2, 4, move |_| {
        // SAFETY: there is no such library.
        assert!(unsafe { libc::dlopen(c"/nonexistent.so".as_ptr(), libc::RTLD_NOW) }.is_null());
        Library::open(&path).call(c"dynamic_count");
        assert_eq!(error(), None);
    });
}

#[test]
fn a_library_loaded_while_modules_are_listed_does_not_hang() {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.set(build("listed")).unwrap();
    /// # Safety
    /// - **callback**: dl_iterate_phdr calls it.
    unsafe extern "C" fn open(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> i32 {
        let library = Library::open(PATH.get().unwrap());
        library.call(c"listed_count");
        1
    }
    // One that lives before the library comes, and goes on when it is there.
    let mut waiting = Routine::new(Size::from_environment().unwrap(), || {
        suspend();
        Library::open(PATH.get().unwrap()).call(c"listed_count")
    });
    waiting.resume().unwrap();
    run_all(2, 1, |_| {
        // SAFETY: the callback takes what dl_iterate_phdr passes.
        let stopped = unsafe { libc::dl_iterate_phdr(Some(open), std::ptr::null_mut()) };
        assert_eq!(stopped, 1);
    });
    waiting.resume().unwrap();
    assert_eq!(waiting.into_result().unwrap().unwrap(), 301);
    // The loader and forks go on.
    assert!(std::process::Command::new("true").status().unwrap().success());
}

#[test]
fn a_library_loaded_while_modules_are_listed_is_new_to_a_load_beside_it() {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    static LOADED: AtomicBool = AtomicBool::new(false);
    PATH.set(build("meanwhile")).unwrap();
    /// # Safety
    /// - **callback**: dl_iterate_phdr calls it.
    unsafe extern "C" fn open(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> i32 {
        Library::open(PATH.get().unwrap());
        LOADED.store(true, Ordering::Release);
        // Long enough for the other one to wait for the loader.
        std::thread::sleep(std::time::Duration::from_millis(100));
        1
    }
    let size = Size::from_environment().unwrap();
    let mut waiting = Routine::new(size, || {
        suspend();
        Library::open(PATH.get().unwrap()).call(c"meanwhile_count")
    });
    waiting.resume().unwrap();
    let other = build("unrelated");
    let beside = std::thread::spawn(move || {
        while !LOADED.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        Library::open(&other);
    });
    let mut lists = Routine::new(size, || {
        // SAFETY: the callback takes what dl_iterate_phdr passes.
        unsafe { libc::dl_iterate_phdr(Some(open), std::ptr::null_mut()) }
    });
    lists.resume().unwrap();
    assert_eq!(lists.into_result().unwrap().unwrap(), 1);
    beside.join().unwrap();
    waiting.resume().unwrap();
    assert_eq!(waiting.into_result().unwrap().unwrap(), 301);
}
