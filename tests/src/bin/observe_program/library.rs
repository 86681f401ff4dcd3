//! Goroutines in functions of shared libraries. The program opens, dumps and closes one library
//! after another.
//!
//! The arguments for each library are its path, its function, and the file that replaces it once it
//! is loaded, or an empty argument.

use gosched::{chan, go, runtime, yield_now};
use std::ffi::CString;
use std::hint::black_box;
use std::sync::Mutex;

/// Separator after each dump.
const BORDER: &str = "\n=====\n";

static WAITS_FOR: Mutex<Option<chan::Receiver<u64>>> = Mutex::new(None);

#[inline(never)]
extern "C" fn waits_in_library() {
    let receiver = WAITS_FOR.lock().unwrap().take().unwrap();
    black_box(receiver.recv()).unwrap_err();
}

pub(crate) fn program() {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let mut starts = Vec::new();
    for library in arguments.chunks(3) {
        let [path, function, other] = library else { panic!("{library:?}") };
        let text = |text: &str| CString::new(text).unwrap();
        // SAFETY: our own library, without constructors.
        let handle = unsafe { libc::dlopen(text(path).as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path}");
        if !other.is_empty() {
            std::fs::rename(other, path).unwrap();
        }
        // SAFETY: the library is open.
        let start = unsafe { libc::dlsym(handle, text(function).as_ptr()) };
        assert!(!start.is_null(), "{function}");
        starts.push(start as usize);
        type Calls = extern "C" fn(extern "C" fn());
        // SAFETY: the function has this type.
        let calls = unsafe { std::mem::transmute::<*mut libc::c_void, Calls>(start) };
        print!("{}{BORDER}", shown(calls));
        // SAFETY: no goroutine is inside the library.
        assert_eq!(unsafe { libc::dlclose(handle) }, 0);
    }
    starts.dedup();
    print!("{} places", starts.len());
}

/// Returns a dump taken while a goroutine waits inside `calls`, which calls its argument.
fn shown(calls: extern "C" fn(extern "C" fn())) -> String {
    let (sender, receiver) = chan::<u64>(0);
    *WAITS_FOR.lock().unwrap() = Some(receiver);
    let waits = go(move || calls(waits_in_library));
    let text = loop {
        let text = runtime::dump();
        let mut blocks = text.split("\n\n");
        if blocks.any(|block| block.contains("[chan receive") && block.contains("waits_in_library"))
        {
            break text;
        }
        yield_now();
    };
    drop(sender);
    waits.join().unwrap();
    text
}
