//! Libraries with thread-locals that are loaded while goroutines run, for both kinds of access:
//! dynamic and static.
//!
//! The tests build the libraries with `cc`. In a program that links libc statically, glibc's loader
//! has one namespace and no dynamic thread-locals (their first use crashes on any thread). That
//! build leaves out their tests.

use gosched_fiber::{Routine, Size, suspend};
use gosched_tests::runner::run_all;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Compiles `c/NAME.c` to a library, once per process, and returns its path.
fn build(name: &'static str) -> PathBuf {
    build_with(name, &[])
}

/// Like [`build`], with further compiler arguments.
fn build_with(name: &'static str, arguments: &[&str]) -> PathBuf {
    gosched_tests::shared_library::build(name, Path::new(env!("CARGO_TARGET_TMPDIR")), arguments)
}

/// Checks that `function` of the library at `path` counts a thread-local up from `first`, both in
/// goroutines that existed before the library was loaded and in later goroutines, on reused slots.
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
        // SAFETY: the library belongs to this suite; its constructor only reads a variable.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{:?}", error());
        Library(handle)
    }

    fn close(self) {
        // SAFETY: nothing of the library is used after this.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }

    fn address(&self, name: &CStr) -> *mut c_void {
        // SAFETY: looks up a name in an open library.
        let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?}");
        at
    }

    fn call(&self, name: &CStr) -> i32 {
        // SAFETY: the functions called through this method take no arguments and return an int.
        let f = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(self.address(name))
        };
        f()
    }

    fn pointer(&self, name: &CStr) -> usize {
        // SAFETY: the functions called through this method take no arguments and return a pointer.
        let f = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn() -> usize>(self.address(name))
        };
        f()
    }
}

fn error() -> Option<String> {
    // SAFETY: dlerror has no precondition.
    let text = unsafe { libc::dlerror() };
    // SAFETY: the string is valid until the next call of dlerror.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(not(target_feature = "crt-static"))]
#[test]
fn each_goroutine_has_its_own_fresh_dynamic_thread_locals() {
    let path = Arc::new(build("dynamic"));
    let addresses = Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
    // Several rounds, so that slots are reused.
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
fn static_thread_locals_of_a_library_loaded_later_are_initialised_in_every_goroutine() {
    static LOADED: AtomicBool = AtomicBool::new(false);
    let path = Arc::new(build("fixed"));
    for round in 0..4 {
        let path = path.clone();
        run_all(4, 32, move |number| {
            // All goroutines but one exist before the library is loaded.
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
fn a_library_loaded_by_a_thread_is_initialised_in_goroutines_too() {
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
fn dlerror_returns_the_error_of_a_failed_load_to_its_goroutine_once() {
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
fn libraries_can_be_loaded_and_unloaded_while_goroutines_start_and_end() {
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
fn static_thread_locals_of_libraries_not_marked_as_static_are_initialised() {
    counts_from(&build_with("descriptor", &["-mtls-dialect=gnu2"]), c"descriptor_count", 77);
    let base = build("base");
    let dependent = build_with("dependent", &[base.to_str().unwrap()]);
    counts_from(&dependent, c"dependent_count", 55);
}

#[test]
fn a_reloaded_library_has_fresh_thread_locals() {
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
    while routine.resume().unwrap() == gosched_fiber::Status::Suspended {}
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

#[cfg(not(target_feature = "crt-static"))]
#[test]
fn a_library_loaded_by_dlmopen_is_not_initialised_again() {
    let path = build("spaced");
    let other = build("unrelated");
    let mut routine = Routine::new(Size::from_environment().unwrap(), move || {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library belongs to this suite and needs no other library; it gets its own
        // namespace.
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
fn a_successful_load_clears_the_error_of_an_earlier_one() {
    let path = Arc::new(build("late"));
    run_all(2, 4, move |_| {
        // SAFETY: there is no such library.
        assert!(unsafe { libc::dlopen(c"/nonexistent.so".as_ptr(), libc::RTLD_NOW) }.is_null());
        Library::open(&path).call(c"late_count");
        assert_eq!(error(), None);
    });
}

#[test]
fn a_library_loaded_while_modules_are_listed_does_not_hang() {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.set(build("listed")).unwrap();
    /// # Safety
    /// - **callback**: only dl_iterate_phdr calls it.
    unsafe extern "C" fn open(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> i32 {
        let library = Library::open(PATH.get().unwrap());
        library.call(c"listed_count");
        1
    }
    // A goroutine that exists before the library is loaded, and continues afterwards.
    let mut waiting = Routine::new(Size::from_environment().unwrap(), || {
        suspend();
        Library::open(PATH.get().unwrap()).call(c"listed_count")
    });
    waiting.resume().unwrap();
    run_all(2, 1, |_| {
        // SAFETY: the callback has the signature that dl_iterate_phdr expects.
        let stopped = unsafe { libc::dl_iterate_phdr(Some(open), std::ptr::null_mut()) };
        assert_eq!(stopped, 1);
    });
    waiting.resume().unwrap();
    assert_eq!(waiting.into_result().unwrap().unwrap(), 301);
    // The loader and `fork` still work.
    assert!(std::process::Command::new("true").status().unwrap().success());
}

#[test]
fn a_library_loaded_while_modules_are_listed_is_initialised_despite_a_concurrent_load() {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    static LOADED: AtomicBool = AtomicBool::new(false);
    PATH.set(build("meanwhile")).unwrap();
    /// # Safety
    /// - **callback**: only dl_iterate_phdr calls it.
    unsafe extern "C" fn open(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> i32 {
        Library::open(PATH.get().unwrap());
        LOADED.store(true, Ordering::Release);
        // Long enough for the thread `beside` to wait for the loader's lock.
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
        // SAFETY: the callback has the signature that dl_iterate_phdr expects.
        unsafe { libc::dl_iterate_phdr(Some(open), std::ptr::null_mut()) }
    });
    lists.resume().unwrap();
    assert_eq!(lists.into_result().unwrap().unwrap(), 1);
    beside.join().unwrap();
    waiting.resume().unwrap();
    assert_eq!(waiting.into_result().unwrap().unwrap(), 301);
}

#[test]
fn a_library_that_uses_libc_works_in_every_goroutine() {
    static LOADED: AtomicBool = AtomicBool::new(false);
    let path = Arc::new(build("service"));
    for round in 0..4 {
        let path = path.clone();
        run_all(4, 32, move |number| {
            // All goroutines but one exist before the library is loaded and brings in libc.so.
            while number != 0 && !LOADED.load(Ordering::Acquire) {
                suspend();
            }
            let library = Library::open(&path);
            LOADED.store(true, Ordering::Release);
            // Called before library code sets a locale, which would also set up the character
            // tables.
            assert_eq!(library.call(c"service_call"), 500, "{round} {number}");
            assert_eq!(library.call(c"service_starts_clean"), 1, "{round} {number}");
            for step in 1..20 {
                assert_eq!(library.call(c"service_call"), 500 + step, "{round} {number}");
                suspend();
            }
        });
    }
}

/// libc.so's malloc keeps a cache per thread. The next goroutine in the same slot takes over the
/// cache.
#[cfg(target_feature = "crt-static")]
#[test]
fn memory_of_a_libc_brought_in_by_a_library_does_not_grow_with_goroutines() {
    let path = Arc::new(build("service"));
    let run_many = || {
        for _ in 0..100 {
            let path = path.clone();
            run_all(2, 100, move |_| {
                Library::open(&path).call(c"service_call");
                suspend();
            });
        }
        Library::open(&path).call(c"service_memory")
    };
    let (before, after) = (run_many(), run_many());
    // A cache takes two thirds of a KiB, so 10,000 caches would take 6 MiB.
    assert!(after - before < 1024, "{before} KiB, then {after} KiB");
}

/// Converts `text` to a character set that libc supports by a separate library. Returns `None` if
/// this system has no such library.
fn convert(set: &CStr, text: &str) -> Option<Vec<u8>> {
    // SAFETY: both arguments are C strings.
    let converter = unsafe { libc::iconv_open(set.as_ptr(), c"UTF-8".as_ptr()) };
    if converter as isize == -1 {
        return None;
    }
    let (mut from, mut from_left) = (text.as_ptr().cast_mut().cast(), text.len());
    let mut converted = vec![0u8; 4 * text.len()];
    let (mut to, mut to_left) = (converted.as_mut_ptr().cast(), converted.len());
    // SAFETY: both buffers have the given lengths; iconv does not write to the first one.
    let failed =
        unsafe { libc::iconv(converter, &mut from, &mut from_left, &mut to, &mut to_left) };
    // SAFETY: opened above, closed once.
    unsafe { libc::iconv_close(converter) };
    assert_eq!(failed, 0, "{:?}", std::io::Error::last_os_error());
    converted.truncate(converted.len() - to_left);
    Some(converted)
}

#[test]
fn libraries_loaded_by_libc_itself_work_in_goroutines_and_do_not_change_dlerror() {
    // One goroutine loads the library of each set, and goroutines that already exist use it.
    let sets = [c"ISO-8859-15", c"ISO-8859-7", c"KOI8-U", c"CP1252"];
    run_all(2, 8, move |number| {
        let path = CString::new(format!("/nonexistent/lib{number}.so")).unwrap();
        // SAFETY: there is no such library.
        assert!(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) }.is_null());
        suspend();
        for turn in 0..sets.len() {
            let set = sets[(number + turn) % sets.len()];
            match convert(set, "ab") {
                Some(converted) => assert_eq!(converted, b"ab", "{set:?}"),
                None => eprintln!("skipped: libc has no library for {set:?}"),
            }
            suspend();
        }
        let text = error().unwrap();
        assert!(text.contains(&format!("lib{number}.so")), "{text}");
    });
}

/// Returns a service from a line of `/etc/nsswitch.conf` that is a library on this system, not a
/// part of libc.
fn name_service(line: &str) -> Option<String> {
    let file = std::fs::read_to_string("/etc/nsswitch.conf").ok()?;
    let services = file.lines().find_map(|text| text.trim().strip_prefix(line))?;
    let folders = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];
    let is_library = |service: &&str| {
        let built_in = ["files", "dns", "db"].contains(service);
        let file = format!("libnss_{service}.so.2");
        !built_in && folders.iter().any(|folder| Path::new(folder).join(&file).exists())
    };
    services.split_whitespace().find(is_library).map(str::to_owned)
}

fn is_mapped(library: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(library)
}

#[test]
fn a_name_service_library_works_in_goroutines() {
    use std::net::ToSocketAddrs;
    let Some(service) = name_service("hosts:") else {
        return eprintln!("skipped: no service for hosts is a library (ci/packages installs one)");
    };
    run_all(2, 4, |number| {
        suspend();
        // `files` does not contain this host, so libc queries the next service.
        assert!((format!("no-such-host-{number}.local"), 80).to_socket_addrs().is_err());
        suspend();
        let addresses: Vec<_> = ("localhost", 80).to_socket_addrs().unwrap().collect();
        assert!(!addresses.is_empty());
    });
    assert!(is_mapped(&format!("libnss_{service}.so")), "{service} was not asked");
}

/// If libc is linked statically, libnss_systemd crashes even a plain C program: it has dynamic
/// thread-locals.
#[cfg(not(target_feature = "crt-static"))]
#[test]
fn a_user_database_library_works_in_goroutines() {
    let Some(service) = name_service("passwd:") else {
        return eprintln!("skipped: no service for users is a library");
    };
    run_all(2, 4, |number| {
        suspend();
        let name = CString::new(format!("no-such-user-{number}")).unwrap();
        let mut record = std::mem::MaybeUninit::uninit();
        let (mut text, mut found) = ([0; 4096], std::ptr::null_mut());
        // SAFETY: all pointers are valid for writes; `text` has the given length.
        unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                record.as_mut_ptr(),
                text.as_mut_ptr(),
                text.len(),
                &mut found,
            )
        };
        assert!(found.is_null());
    });
    assert!(is_mapped(&format!("libnss_{service}.so")), "{service} was not asked");
}
