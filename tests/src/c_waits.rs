//! Every kind of call that waits: `c/waits.c`.

use std::ffi::{CStr, c_char};

/// A call returned something wrong.
pub const WRONG: i32 = 1000;
/// A call ended before its time.
pub const EARLY: i32 = 1001;

unsafe extern "C" {
    fn waits_name(kind: i32) -> *const c_char;
    fn waits_run(kind: i32) -> i32;
}

/// The names of all kinds, in their order.
///
/// # Panics
/// Never.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    loop {
        // SAFETY: a number of a kind, or the first that is none.
        let name = unsafe { waits_name(names.len() as i32) };
        if name.is_null() {
            return names;
        }
        // SAFETY: a C string that is never freed.
        names.push(unsafe { CStr::from_ptr(name) }.to_str().expect("plain text").to_owned());
    }
}

/// Waits for about 15 ms in this way: 0, or the number of an error, or [`WRONG`], or [`EARLY`].
///
/// # Panics
/// There is no such kind.
pub fn run(kind: usize) -> i32 {
    assert!(kind < names().len());
    // SAFETY: a number of a kind.
    unsafe { waits_run(kind as i32) }
}
