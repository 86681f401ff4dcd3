//! All kinds of waiting calls from `c/waits.c`.

use std::ffi::{CStr, c_char};

/// The result of a call that returned a wrong value.
pub const WRONG: i32 = 1000;
/// The result of a call that returned before its wait was over.
pub const EARLY: i32 = 1001;

unsafe extern "C" {
    fn waits_name(kind: i32) -> *const c_char;
    fn waits_run(kind: i32) -> i32;
}

/// Returns the names of all kinds. A kind's number is its index.
///
/// # Panics
/// Never.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    loop {
        // SAFETY: the number of a kind, or the first number after the last kind.
        let name = unsafe { waits_name(names.len() as i32) };
        if name.is_null() {
            return names;
        }
        // SAFETY: a static C string.
        names.push(unsafe { CStr::from_ptr(name) }.to_str().expect("plain text").to_owned());
    }
}

/// Waits for about 15 ms in a call of this kind. Returns 0, an errno, [`WRONG`], or [`EARLY`].
///
/// # Panics
/// There is no such kind.
pub fn run(kind: usize) -> i32 {
    assert!(kind < names().len());
    // SAFETY: the number of a kind.
    unsafe { waits_run(kind as i32) }
}
