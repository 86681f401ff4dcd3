//! Safe wrappers of the C functions in `c/linked.c`.

use std::ffi::CString;

/// Declares C functions of `c/linked.c` and defines a safe wrapper for each.
macro_rules! c {
    ($($(#[$doc:meta])* $name:ident = $c:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        $(#[$doc])*
        pub fn $name($($arg: $type),*) $(-> $result)? {
            unsafe extern "C" {
                fn $c($($arg: $type),*) $(-> $result)?;
            }
            // SAFETY: the C function has no precondition.
            unsafe { $c($($arg),*) }
        }
    )*};
}

c! {
    /// Increments a `__thread` variable that starts at 5, and returns it.
    count = linked_count() -> i32;
    /// Sets a locale for the caller only. Returns 0 on failure.
    use_locale = linked_use_locale() -> i32;
    /// Returns 1 if the caller has its own locale.
    has_locale = linked_has_locale() -> i32;
    /// Returns whether `c` is a letter in the caller's locale.
    is_alpha = linked_isalpha(c: i32) -> i32;
    /// Returns whether the caller's locale uses UTF-8.
    is_utf8 = linked_is_utf8() -> i32;
    /// Sets errno.
    set_errno = linked_set_errno(value: i32);
    /// Returns errno.
    errno = linked_errno() -> i32;
    /// Creates the pthread key. Its destructor adds the value to a sum, and sets the key again to
    /// the value minus one until that is 0.
    make_key = linked_make_key();
    /// Returns the key's value.
    key = linked_key() -> i64;
    /// Sets the key's value.
    set_key = linked_set_key(value: i64);
    /// Returns the sum of the values that destructors received.
    destroyed = linked_destroyed() -> i32;
    /// Tries to lock a recursive mutex. Returns 1 if the caller now holds it.
    try_lock = linked_try_lock() -> i32;
    /// Unlocks the recursive mutex.
    unlock = linked_unlock() -> i32;
    /// Sets the rounding mode: 0 nearest, 1 down, 2 up, 3 toward zero.
    round = linked_round(mode: i32);
    /// Returns one third, computed with SSE in the current rounding mode.
    third = linked_third() -> f64;
    /// Returns whether the x87 unit rounds one third down.
    x87_rounds_down = linked_x87_rounds_down() -> i32;
    /// Returns whether an operation was inexact since the flag was cleared.
    inexact = linked_inexact() -> i32;
    /// Clears the inexact flag.
    clear_inexact = linked_clear_inexact();
    /// Returns whether the stack that libc reports contains the caller's frame.
    stack_is_known = linked_stack_is_known() -> i32;
    /// Returns whether libc reports the caller's affinity correctly.
    affinity_is_known = linked_affinity_is_known() -> i32;
    /// Returns whether libc has a CPU-time clock for the caller.
    cpu_clock_is_known = linked_cpu_clock_is_known() -> i32;
    /// Returns the CPU that the caller runs on.
    cpu = linked_cpu() -> i32;
    /// Recurses `depth` times, with a frame of 40 KB per call.
    big_frame = linked_big_frame(depth: i32) -> i32;
    /// Recurses `depth` times, with a frame of 130 KB per call that is touched only in its middle.
    huge_frame = linked_huge_frame(depth: i32) -> i32;
    /// Disables cancellation. Returns 1 if it was enabled.
    disable_cancel = linked_disable_cancel() -> i32;
    /// Returns whether the caller's resolver state is in its own control block.
    resolver_is_own = linked_resolver_is_own() -> i32;
    /// Returns the resolver's `ndots` and sets it to 7.
    resolver_ndots = linked_resolver_ndots() -> i32;
    /// Registers a function that prints "at exit" when the process exits.
    at_exit = linked_at_exit() -> i32;
    /// Sets a key, deletes it, and creates a second key, which reuses the first key's number.
    outlive_key = linked_outlive_key();
    /// Returns how often the second key's destructor was called.
    second_calls = linked_second_calls() -> i32;
    /// Creates 60 keys whose destructors set them again.
    make_stubborn = linked_make_stubborn();
    /// Sets these keys. Returns how many were already set.
    set_stubborn = linked_set_stubborn() -> i32;
}

/// Calls `strtod`.
///
/// # Panics
/// The text contains a NUL byte.
pub fn parse(text: &str) -> f64 {
    unsafe extern "C" {
        fn linked_parse(text: *const std::ffi::c_char) -> f64;
    }
    let text = CString::new(text).expect("no null");
    // SAFETY: a C string that outlives the call.
    unsafe { linked_parse(text.as_ptr()) }
}
